// take: lease the jobs `found`, each {c, lease, stands}. Locked in the order of ids, by writing the one property that never
// changes: what is read for the write is read before the lock, and would be put back. What changed before the lock is
// left out. It costs an attempt; the fence grows even if the clock went back. What cannot be there before a first lease is
// not removed: the server would look for it at each job's every property.
UNWIND found AS one
WITH one.c AS c, one.lease AS lease, one.stands AS stands
ORDER BY c.id
SET c.id = c.id
WITH collect({c: c, lease: lease, stands: stands}) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS one
WITH one.c AS j, one.lease AS lease, one.stands AS stands, now
WHERE j.status = 'pending' AND j.rank IS NOT NULL
  AND (j.expires_at IS NULL OR j.expires_at > now OR j.attempts > 0)
WITH j, lease, now, [stands, j.rank, j.seq] AS stood, j.fence > 0 AS before
SET j += {
  status: 'processing', rank: null, attempts: j.attempts + 1,
  fence: CASE WHEN j.fence + 1 > now THEN j.fence + 1 ELSE now END,
  lock_owner: $owner, lock_until: now + lease, heartbeat_at: now, started_at: now
}, j += CASE WHEN before THEN {stage: null, progress: null} ELSE {} END
