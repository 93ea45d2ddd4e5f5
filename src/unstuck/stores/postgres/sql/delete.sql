-- delete: remove finished jobs and their events, the oldest first.
WITH finished AS MATERIALIZED (
    SELECT id, queue FROM {schema}.jobs WHERE finished_at IS NOT NULL AND {matching}
    ORDER BY finished_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM {schema}.jobs USING finished WHERE jobs.id = finished.id AND jobs.queue = finished.queue RETURNING jobs.queue, jobs.id
),
forgotten AS (
    DELETE FROM {schema}.job_events USING gone WHERE job_events.job_id = gone.id AND job_events.queue = gone.queue
)
SELECT count(*) FROM gone
