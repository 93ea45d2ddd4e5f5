-- requeue: make finished jobs pending again with fresh budgets. The fence goes on, so old leases stay refused.
-- Who asks for that wants them to run, however late.
WITH finished AS MATERIALIZED (
    SELECT id, queue FROM {schema}.jobs WHERE finished_at IS NOT NULL AND {matching}
    ORDER BY finished_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
again AS (
    UPDATE {schema}.jobs SET
        status = 'pending', next_earliest_run_at = now(),
        rank = now() - make_interval(mins => priority), finished_at = NULL, started_at = NULL,
        attempt_count = 0, crashes = 0, stage = NULL, progress = NULL, result = NULL, fail_code = NULL, fail_reason = NULL,
        expires_at = NULL
    FROM finished WHERE jobs.id = finished.id AND jobs.queue = finished.queue
    RETURNING jobs.queue, jobs.id
),
logged AS (
    INSERT INTO {schema}.job_events (type, queue, job_id, data) 
    SELECT 'requeued', queue, id, '{"type": "requeued", "table": "jobs", "details": {}}' FROM again
),
rung AS (SELECT pg_notify(%(channel)s, queue) FROM (SELECT DISTINCT queue FROM again) AS ready)
SELECT count(*), (SELECT count(*) FROM rung) FROM again
