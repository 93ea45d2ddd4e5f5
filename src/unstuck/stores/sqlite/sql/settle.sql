-- settle: end leases. Each applies only for the fence that holds the job; time plays no part.
-- A job that goes back without a delay keeps its run_at, and with it its old position in line.
UPDATE job SET
    status = ended.status,
    attempts = max(0, attempts - ended.refund), -- a job that a reaper took because it expired has no attempt
    crashes = min(crashes + ended.crashed, attempts),
    run_at = iif(ended.delay > 0, :now + ended.delay, run_at),
    rank = iif(ended.status = 'pending' AND ended.delay = 0, run_at - 60000 * priority, NULL),
    finished_at = iif(ended.status = 'pending', NULL, :now),
    result = ended.result,
    error = coalesce(ended.error, job.error),
    settled_fence = job.fence,
    settled = ended.word,
    owner = NULL,
    lease_until = NULL,
    heartbeat_at = NULL
FROM (
    SELECT
        value ->> 'id' AS id, value ->> 'queue' AS queue, value ->> 'fence' AS fence, value ->> 'status' AS status,
        value ->> 'word' AS word, value ->> 'refund' AS refund, value ->> 'crashed' AS crashed,
        value ->> 'delay' AS delay, value ->> 'result' AS result, value ->> 'error' AS error
    FROM json_each(:outcomes)
) AS ended
WHERE job.id = ended.id AND job.queue = ended.queue AND job.fence = ended.fence AND job.status = 'processing'
