-- edit: give jobs that wait another priority or another time. What is NULL stays as it is.
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT jobs.seq, jobs.id, jobs.queue FROM ROWS FROM (
        json_array_elements_text(%(queue)s::json), json_array_elements_text(%(id)s::json)
    ) AS named (queue, id) JOIN {schema}.jobs ON jobs.id = named.id AND jobs.queue = named.queue
),
locked AS MATERIALIZED (
    SELECT jobs.seq FROM {schema}.jobs JOIN waiting USING (seq) WHERE jobs.status = 'pending'
    ORDER BY jobs.id, jobs.queue
    FOR UPDATE OF jobs
),
edited AS (
    UPDATE {schema}.jobs SET
        priority = coalesce(%(priority)s::smallint, priority),
        next_earliest_run_at = coalesce(%(run_at)s::timestamptz, next_earliest_run_at),
        rank = CASE WHEN coalesce(%(run_at)s::timestamptz, next_earliest_run_at) <= clock_timestamp()
            THEN coalesce(%(run_at)s::timestamptz, next_earliest_run_at)
                - make_interval(mins => coalesce(%(priority)s::smallint, priority)) END
    FROM locked WHERE jobs.seq = locked.seq
    RETURNING jobs.queue, jobs.id, jobs.rank
),
told AS (
    INSERT INTO {schema}.job_events (type, queue, job_id, data)
    SELECT 'edited', queue, id, json_build_object('type', 'edited', 'table', 'jobs', 'details', %(details)s::json)
    FROM edited
),
rung AS (
    SELECT pg_notify(%(channel)s, queue) FROM (SELECT DISTINCT queue FROM edited WHERE rank IS NOT NULL) AS ready
)
SELECT count(*), (SELECT count(*) FROM rung) FROM edited
