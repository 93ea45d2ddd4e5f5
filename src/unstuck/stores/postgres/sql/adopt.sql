-- adopt: give a lease to jobs that are processed without one and whose holder was silent for the grace,
-- and to those whose last beat lies in the future, because the clock has been put back since.
-- The latter are looked for only if asked to: it means to read all leases that have more than a minute to go.
WITH silent AS MATERIALIZED (
    SELECT id, queue FROM (
        SELECT id, queue FROM {schema}.jobs
        WHERE status = 'processing' AND lease_expires_at IS NULL
            AND coalesce(last_heartbeat_at, started_at, next_earliest_run_at)
                < clock_timestamp() - make_interval(secs => %(grace)s)
            AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ) AS without_lease
    UNION ALL
    SELECT id, queue FROM (
        SELECT id, queue FROM {schema}.jobs
        WHERE %(future)s AND status = 'processing' AND lease_expires_at > clock_timestamp() + interval '1 minute'
            AND last_heartbeat_at > clock_timestamp() + interval '1 minute'
            AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ) AS in_the_future
),
adopted AS (
    UPDATE {schema}.jobs SET
        lease_expires_at = clock_timestamp()
            + coalesce(lease_expires_at - last_heartbeat_at, make_interval(secs => %(grace)s)),
        last_heartbeat_at = clock_timestamp()
    FROM silent WHERE jobs.id = silent.id AND jobs.queue = silent.queue
    RETURNING jobs.queue, jobs.id, jobs.locked_by
),
logged AS (
    INSERT INTO {schema}.job_events (type, queue, job_id, data)
    SELECT 'reaper:adopted', queue, id, json_build_object(
        'type', 'reaper:adopted', 'table', 'jobs', 'details', json_build_object('owner', locked_by)
    )
    FROM adopted
)
SELECT count(*) FROM adopted
