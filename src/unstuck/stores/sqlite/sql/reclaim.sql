-- reclaim: take over a lease that this same transaction found to have ended, or a job that was not started in time. The
-- attempt was counted when the job was leased.
UPDATE job SET
    status = 'processing', rank = NULL, fence = max(fence + 1, :now), owner = :owner, lease_until = :now + :lease, heartbeat_at = :now
WHERE id = :id AND queue = :queue
RETURNING fence
