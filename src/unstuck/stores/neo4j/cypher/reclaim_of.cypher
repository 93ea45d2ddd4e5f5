// reclaim_of: reclaim for all leases of owners that are known to be dead.
MATCH (c:{label})
USING INDEX SEEK c:{label}(status)
WHERE c.status = 'processing' AND c.lock_owner IN $of AND c.id > '' AND ($queues IS NULL OR c.queue IN $queues)
WITH c, c.lock_until AS ended ORDER BY ended LIMIT $limit
WITH collect({c: c, ended: ended}) AS found
{fit}
UNWIND found AS one
WITH one.c AS c, one.ended AS ended ORDER BY c.id
SET c.id = c.id
WITH collect({c: c, ended: ended}) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS one
WITH one.c AS j, one.ended AS ended, now
WHERE j.status = 'processing' AND j.lock_owner IN $of
{overtake}
