-- settle: end one lease. Applies only for the fence that holds the job; time plays no part.
-- A job that goes back without a delay keeps its run_at, and with it its old place in line.
UPDATE job SET
    status = :status,
    attempts = attempts - :refund,
    crashes = crashes + :crashed,
    run_at = iif(:delay > 0, :now + :delay, run_at),
    rank = iif(:status = 'pending' AND :delay = 0, run_at - 60000 * priority, NULL),
    finished_at = iif(:status = 'pending', NULL, :now),
    result = :result,
    error = coalesce(:error, error),
    settled_fence = fence,
    settled = :word,
    owner = NULL,
    lease_until = NULL,
    heartbeat_at = NULL
WHERE id = :id AND queue = :queue AND fence = :fence AND status = 'processing'
