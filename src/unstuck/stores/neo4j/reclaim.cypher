// reclaim: take over leases that ran out, the longest silent first. Blind time does not count: a span in which the
// holder could not be heard prolongs the lease by as much of it as came after its last beat. Answers with the jobs as
// they were, and their new fences.
MATCH (c:{label})
USING INDEX SEEK c:{label}(lock_until)
WHERE c.lock_until < timestamp() AND c.status = 'processing' AND c.id > '' AND ($queues IS NULL OR c.queue IN $queues)
  AND reduce(until = c.lock_until, span IN $blind | until + CASE
    WHEN timestamp() - span[1] <= coalesce(c.heartbeat_at, 0) THEN 0
    WHEN timestamp() - span[0] < c.heartbeat_at THEN timestamp() - span[1] - c.heartbeat_at
    ELSE span[0] - span[1] END) < timestamp()
WITH c, c.lock_until AS ended ORDER BY ended LIMIT $limit
WITH c, ended ORDER BY c.id
SET c.id = c.id
WITH collect({c: c, ended: ended}) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS one
WITH one.c AS j, one.ended AS ended, now
WHERE j.status = 'processing' AND j.lock_until = ended
{overtake}
