// take: lease the jobs `chosen`, each {c, lease}. Locked in the order of ids; what changed before the lock was had is
// left out. It costs an attempt; the fence grows even if the clock went back.
UNWIND chosen AS one
WITH one.c AS c, one.lease AS lease
ORDER BY c.id
SET c.fence = c.fence
WITH collect({c: c, lease: lease}) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS one
WITH one.c AS j, one.lease AS lease, now
WHERE j.status = 'pending' AND j.rank IS NOT NULL
WITH j, lease, now, [j.rank, j.seq] AS stood
SET j += {
  status: 'processing', rank: null, attempts: j.attempts + 1,
  fence: CASE WHEN j.fence + 1 > now THEN j.fence + 1 ELSE now END,
  lock_owner: $owner, lock_until: now + lease, heartbeat_at: now, started_at: now, stage: null, progress: null
}
