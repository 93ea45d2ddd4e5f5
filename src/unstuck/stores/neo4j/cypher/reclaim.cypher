// reclaim: take over leases that had run out when the reaper read the clock, the longest silent first. Blind time does not
// count: a span in which the holder could not reach the store prolongs the lease by as much of it as came after its last beat,
// or, without one, after its end. Then also takes the jobs that were not started in time. Answers with the jobs as they were, and their new fences.
WITH CASE WHEN $as_of < timestamp() THEN $as_of ELSE timestamp() END AS look
CALL (look) {
  MATCH (c:{label})
  USING INDEX SEEK c:{label}(lock_until)
  WHERE c.lock_until < look AND c.status = 'processing' AND c.id > '' AND ($queues IS NULL OR c.queue IN $queues)
    AND reduce(until = c.lock_until, span IN $blind | until + CASE
      WHEN look - span[1] <= coalesce(c.heartbeat_at, c.lock_until) THEN 0
      WHEN look - span[0] < coalesce(c.heartbeat_at, c.lock_until)
        THEN look - span[1] - coalesce(c.heartbeat_at, c.lock_until)
      ELSE span[0] - span[1] END) < look
  WITH c, c.lock_until AS ended ORDER BY ended LIMIT $limit
  RETURN collect({c: c, ended: ended}) AS lapsed
}
CALL () {
  MATCH (c:{label})
  USING INDEX SEEK c:{label}(status, expires_at)
  WHERE c.status = 'pending' AND c.expires_at <= timestamp() AND c.attempts = 0 AND c.id > ''
    AND ($queues IS NULL OR c.queue IN $queues)
  WITH c ORDER BY c.status, c.expires_at LIMIT $limit
  RETURN collect({c: c, ended: c.expires_at}) AS expired
}
WITH (lapsed + expired)[..$limit] AS found
{fit}
UNWIND found AS one
WITH one.c AS c, one.ended AS ended ORDER BY c.id
SET c.id = c.id
WITH collect({c: c, ended: ended}) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS one
WITH one.c AS j, one.ended AS ended, now
WHERE j.status = 'processing' AND j.lock_until = ended
  OR j.status = 'pending' AND j.attempts = 0 AND j.expires_at = ended
{overtake}
