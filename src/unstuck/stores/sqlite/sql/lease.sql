-- lease: take jobs that this same transaction found in line. It costs an attempt; the fence grows even if the clock
-- went back.
UPDATE job SET
    status = 'processing', rank = NULL, attempts = attempts + 1, fence = max(fence + 1, :now),
    owner = :owner, lease_until = :now + (:leases ->> queue), heartbeat_at = :now, started_at = :now,
    stage = NULL, progress = NULL
WHERE seq IN (SELECT value FROM json_each(:seqs))
