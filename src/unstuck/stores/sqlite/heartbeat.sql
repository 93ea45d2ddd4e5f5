-- heartbeat: renew one lease, if it is still held. What is NULL stays as it is.
UPDATE job SET
    lease_until = :now + :lease, heartbeat_at = :now,
    progress = coalesce(:progress, progress), stage = coalesce(:stage, stage)
WHERE id = :id AND queue = :queue AND fence = :fence AND status = 'processing'
