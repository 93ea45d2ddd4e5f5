-- requeue: make finished jobs pending again with fresh budgets. The fence goes on, so old leases stay refused.
-- Who asks for that wants them to run, however late.
UPDATE job SET
    status = 'pending', run_at = :now, rank = :now - 60000 * priority, finished_at = NULL, started_at = NULL,
    attempts = 0, crashes = 0, stage = NULL, progress = NULL, result = NULL, expires_at = NULL
WHERE seq IN (SELECT seq FROM job WHERE finished_at IS NOT NULL AND {matching} ORDER BY finished_at LIMIT :limit)
RETURNING queue, id
