-- settle: end leases. Each applies only for the fence that holds the job; time plays no part. Events and counters are
-- written with it. A job that goes back without a delay keeps its time, and with it its old position in line.
-- Answers how many were applied, and which unless it was all.
WITH ended AS (
    SELECT * FROM ROWS FROM (
        json_to_recordset(%(outcomes)s::json) AS (
            queue text, id text, fence bigint, status text, word text, refund integer, crashed integer,
            delay double precision, result json, error json, code text, reason text, reaped text
        )
    ) WITH ORDINALITY AS ended (
        queue, id, fence, status, word, refund, crashed, delay, result, error, code, reason, reaped, place
    )
),
-- One look-up by address for each, in the order of ids, so that no two batches wait for each other. The status is
-- compared as an expression, so that the planner does not read all that is processing instead.
held AS MATERIALIZED (
    SELECT ended.* FROM (SELECT * FROM ended ORDER BY id, queue) AS ended CROSS JOIN LATERAL (
        SELECT FROM {schema}.jobs
        WHERE jobs.id = ended.id AND jobs.queue = ended.queue AND jobs.fence = ended.fence
            AND jobs.status || '' = 'processing'
        FOR UPDATE
    ) AS line
),
-- One time for all of them, from when their locks were had.
clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM held) AS locked),
applied AS (
    UPDATE {schema}.jobs SET
        status = held.status,
        attempt_count = greatest(0, attempt_count - held.refund), -- a job that a reaper took because it expired has no attempt
        crashes = least(crashes + held.crashed, attempt_count),
        next_earliest_run_at = CASE WHEN held.delay > 0
            THEN clock.now + make_interval(secs => held.delay) ELSE next_earliest_run_at END,
        rank = CASE WHEN held.status = 'pending' AND held.delay = 0
            THEN next_earliest_run_at - make_interval(mins => priority) END,
        finished_at = CASE WHEN held.status <> 'pending' THEN clock.now END,
        result = nullif(held.result::text, 'null')::json,
        error = CASE WHEN held.error IS NULL THEN jobs.error
            ELSE (held.error::jsonb || jsonb_build_object('at', clock.now))::json END,
        fail_code = CASE WHEN held.status = 'failed' THEN held.code END,
        fail_reason = CASE WHEN held.status = 'failed' THEN held.reason END,
        settled_fence = jobs.fence,
        settled = held.word,
        locked_by = NULL,
        lease_expires_at = NULL,
        last_heartbeat_at = NULL
    FROM held, clock WHERE jobs.id = held.id AND jobs.queue = held.queue
    RETURNING jobs.queue, jobs.id, jobs.status, jobs.next_earliest_run_at, held.place, held.word, held.crashed, held.reaped
),
logged AS (
    INSERT INTO {schema}.job_events (type, queue, job_id, data)
    SELECT event.type, applied.queue, applied.id,
        json_build_object('type', event.type, 'table', 'jobs', 'details', event.details)
    FROM applied JOIN ROWS FROM (
        json_to_recordset(%(events)s::json) AS (place bigint, type text, details json)
    ) WITH ORDINALITY AS event (place, type, details, number) USING (place)
    ORDER BY event.number
),
counted AS (
    INSERT INTO {schema}.counters (queue, name, value)
    SELECT applied.queue, counter.name, count(*)
    FROM applied CROSS JOIN LATERAL (
        VALUES (applied.word), (CASE WHEN applied.crashed > 0 THEN 'crashed' END), (applied.reaped)
    ) AS counter (name)
    WHERE counter.name IS NOT NULL
    GROUP BY applied.queue, counter.name
),
rung AS (
    SELECT pg_notify(%(channel)s, notified.queue) FROM json_array_elements_text(%(notify)s::json) AS notified (queue)
    WHERE notified.queue IN (
        SELECT queue FROM applied, clock
        WHERE status = 'pending' AND next_earliest_run_at < clock.now + interval '1 second'
    )
)
SELECT count(*), CASE WHEN count(*) < %(total)s THEN json_agg(place)::text END, (SELECT count(*) FROM rung) FROM applied
