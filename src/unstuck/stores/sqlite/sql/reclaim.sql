-- reclaim: take over a lease that this same transaction found to have ended. The attempt was counted when the job was
-- leased.
UPDATE job SET
    fence = max(fence + 1, :now), owner = :owner, lease_until = :now + :lease, heartbeat_at = :now
WHERE id = :id AND queue = :queue
RETURNING fence
