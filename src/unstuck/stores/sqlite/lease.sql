-- lease: take one job from the line. It costs an attempt; the fence grows even if the clock went back.
UPDATE job SET
    status = 'processing', rank = NULL, attempts = attempts + 1, fence = max(fence + 1, :now),
    owner = :owner, lease_until = :now + :lease, heartbeat_at = :now, started_at = :now,
    stage = NULL, progress = NULL
WHERE seq = :seq AND status = 'pending'
RETURNING {columns}
