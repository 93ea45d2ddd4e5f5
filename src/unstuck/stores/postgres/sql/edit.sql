-- edit: give jobs that wait another priority or another time. What is NULL stays as it is.
WITH waiting AS MATERIALIZED (
    SELECT line.id, line.queue FROM (
        SELECT DISTINCT id, queue FROM ROWS FROM (
            json_array_elements_text(%(queue)s::json), json_array_elements_text(%(id)s::json)
        ) AS named (queue, id)
        ORDER BY id, queue
    ) AS named CROSS JOIN LATERAL (
        SELECT id, queue FROM {schema}.jobs
        WHERE jobs.id = named.id AND jobs.queue = named.queue AND jobs.status || '' = 'pending'
        FOR UPDATE
    ) AS line
),
edited AS (
    UPDATE {schema}.jobs SET
        priority = coalesce(%(priority)s::smallint, priority),
        next_earliest_run_at = coalesce(%(run_at)s::timestamptz, next_earliest_run_at),
        rank = CASE WHEN coalesce(%(run_at)s::timestamptz, next_earliest_run_at) <= clock_timestamp()
            THEN coalesce(%(run_at)s::timestamptz, next_earliest_run_at)
                - make_interval(mins => coalesce(%(priority)s::smallint, priority)) END
    FROM waiting WHERE jobs.id = waiting.id AND jobs.queue = waiting.queue
    RETURNING jobs.queue, jobs.id, jobs.rank
),
logged AS (
    INSERT INTO {schema}.job_events (type, queue, job_id, data)
    SELECT 'edited', queue, id, json_build_object('type', 'edited', 'table', 'jobs', 'details', %(details)s::json)
    FROM edited
),
rung AS (
    SELECT pg_notify(%(channel)s, queue) FROM (SELECT DISTINCT queue FROM edited WHERE rank IS NOT NULL) AS ready
)
SELECT count(*), (SELECT count(*) FROM rung) FROM edited
