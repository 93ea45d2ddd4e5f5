-- complete: settle for the usual case, leases that all end well. Writes nothing that settle would not write. One look-up by
-- address for each, in the order of ids, so that no two batches wait for each other. The status is compared as an
-- expression, so that the planner does not read all that is processing instead.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
ended AS (
    SELECT queue, id, fence::bigint, result, place FROM ROWS FROM (
        json_array_elements_text(%(queue)s::json), json_array_elements_text(%(id)s::json),
        json_array_elements_text(%(fence)s::json), json_array_elements(%(result)s::json)
    ) WITH ORDINALITY AS ended (queue, id, fence, result, place)
    ORDER BY id, queue
),
applied AS (
    UPDATE {schema}.jobs SET
        status = 'completed', rank = NULL, finished_at = clock.now,
        result = nullif(ended.result::text, 'null')::json, settled_fence = jobs.fence, settled = 'completed',
        locked_by = NULL, lease_expires_at = NULL, last_heartbeat_at = NULL
    FROM clock, ended
    WHERE jobs.id = ended.id AND jobs.queue = ended.queue AND jobs.fence = ended.fence
        AND jobs.status || '' = 'processing'
    RETURNING jobs.queue, jobs.id, jobs.fence, ended.place
),
logged AS (
    INSERT INTO {schema}.job_events (type, queue, job_id, data)
    SELECT 'completed', queue, id, json_build_object(
        'type', 'completed', 'table', 'jobs', 'details', json_build_object('fence', fence)
    )
    FROM applied WHERE %(all_events)s ORDER BY place
),
counted AS (
    INSERT INTO {schema}.counters (queue, name, value) SELECT queue, 'completed', count(*) FROM applied GROUP BY queue
)
SELECT count(*), CASE WHEN count(*) < %(total)s THEN json_agg(place)::text END FROM applied
