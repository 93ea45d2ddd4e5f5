-- heartbeat: record that a worker lives and renew the leases that are still held. What is NULL stays as it is.
-- Answers which were renewed, and the leases under this owner's name that were not mentioned.
WITH seen AS (
    INSERT INTO {schema}.workers (id, started_at, seen_at, facts)
    VALUES (%(owner)s, clock_timestamp(), clock_timestamp(), %(facts)s::json)
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, facts = excluded.facts
),
-- Those that have been silent for long are dropped, so that the table stays small.
forgotten AS (
    DELETE FROM {schema}.workers
    WHERE seen_at < clock_timestamp() - make_interval(secs => %(remember)s) AND id <> %(owner)s
),
beat AS (
    SELECT * FROM ROWS FROM (
        json_to_recordset(%(beats)s::json)
            AS (queue text, id text, fence bigint, seconds double precision, progress json, stage text)
    ) WITH ORDINALITY AS beat (queue, id, fence, seconds, progress, stage, place)
),
-- One look-up by address for each, in the order of ids, so that no two batches wait for each other. The status is
-- compared as an expression, so that the planner does not read all that is processing instead.
held AS MATERIALIZED (
    SELECT beat.* FROM (SELECT * FROM beat ORDER BY id, queue) AS beat CROSS JOIN LATERAL (
        SELECT FROM {schema}.jobs
        WHERE jobs.id = beat.id AND jobs.queue = beat.queue AND jobs.fence = beat.fence
            AND jobs.status || '' = 'processing'
        FOR UPDATE
    ) AS line
),
-- One time for all of them, from when their locks were had.
clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM held) AS locked),
renewed AS (
    UPDATE {schema}.jobs SET
        lease_expires_at = clock.now + make_interval(secs => held.seconds),
        last_heartbeat_at = clock.now,
        progress = coalesce(held.progress, jobs.progress),
        stage = coalesce(held.stage, jobs.stage)
    FROM held, clock WHERE jobs.id = held.id AND jobs.queue = held.queue
    RETURNING held.place
)
SELECT
    (SELECT coalesce(json_agg(place), '[]')::text FROM renewed),
    (
        SELECT coalesce(json_agg(json_build_array(queue, id, fence)), '[]')::text FROM {schema}.jobs
        WHERE status = 'processing' AND locked_by = %(owner)s AND NOT EXISTS (
            SELECT 1 FROM beat WHERE beat.id = jobs.id AND beat.queue = jobs.queue AND beat.fence = jobs.fence
        )
    )
