-- cancel: fail a job that is not finished. A running one's lease is taken over and ended in this one step.
UPDATE job SET
    status = 'failed', fence = max(fence + 1, :now), settled_fence = max(fence + 1, :now), settled = 'cancelled',
    rank = NULL, finished_at = :now, error = :error, owner = NULL, lease_until = NULL, heartbeat_at = NULL
WHERE id = :id AND queue = :queue AND status IN ('pending', 'processing')
