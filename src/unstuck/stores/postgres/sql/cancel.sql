-- cancel: fail jobs that are not finished. A running one's lease is taken over and ended in this one step.
WITH open AS MATERIALIZED (
    SELECT line.id, line.queue FROM (
        SELECT DISTINCT id, queue FROM ROWS FROM (
            json_array_elements_text(%(queue)s::json), json_array_elements_text(%(id)s::json)
        ) AS named (queue, id)
        ORDER BY id, queue
    ) AS named CROSS JOIN LATERAL (
        SELECT id, queue FROM {schema}.jobs
        WHERE jobs.id = named.id AND jobs.queue = named.queue AND jobs.status || '' IN ('pending', 'processing')
        FOR UPDATE
    ) AS line
),
-- One time for all of them, from when their locks were had.
clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM open) AS locked),
ended AS (
    UPDATE {schema}.jobs SET
        status = 'failed', fence = greatest(fence + 1, (extract(epoch FROM clock.now) * 1000)::bigint),
        settled_fence = greatest(fence + 1, (extract(epoch FROM clock.now) * 1000)::bigint),
        settled = 'cancelled', rank = NULL, finished_at = clock.now,
        error = (%(error)s::jsonb || jsonb_build_object('at', clock.now))::json, fail_code = %(code)s,
        fail_reason = NULL, locked_by = NULL, lease_expires_at = NULL, last_heartbeat_at = NULL
    FROM open, clock WHERE jobs.id = open.id AND jobs.queue = open.queue
    RETURNING jobs.queue, jobs.id
),
logged AS (
    INSERT INTO {schema}.job_events (type, queue, job_id, data) 
    SELECT 'cancelled', queue, id, '{"type": "cancelled", "table": "jobs", "details": {}}' FROM ended
),
counted AS (
    INSERT INTO {schema}.counters (queue, name, value) SELECT queue, 'cancelled', count(*) FROM ended GROUP BY queue
)
SELECT count(*) FROM ended
