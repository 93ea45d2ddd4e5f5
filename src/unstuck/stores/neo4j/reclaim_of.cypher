// reclaim_of: reclaim for all leases of an owner who is known to be dead.
MATCH (c:{label})
USING INDEX SEEK c:{label}(status)
WHERE c.status = 'processing' AND c.lock_owner = $of AND c.id > '' AND ($queues IS NULL OR c.queue IN $queues)
WITH c, c.lock_until AS ended ORDER BY ended LIMIT $limit
WITH c, ended ORDER BY c.id
SET c.id = c.id
WITH collect({c: c, ended: ended}) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS one
WITH one.c AS j, one.ended AS ended, now
WHERE j.status = 'processing' AND j.lock_owner = $of
{overtake}
