-- heartbeat: renew the leases that are still held, each for as long as its stage needs. A row that somebody else has
-- locked, the product itself perhaps, is not waited for: it would hold up the others, and no reaper takes it meanwhile.
-- Answers which were renewed, which were held when the statement began, and the leases under this owner's name that were not
-- mentioned.
WITH given AS (
    SELECT * FROM ROWS FROM (
        json_to_recordset(%(beats)s::json) AS (id text, fence text, seconds double precision, stage text)
    ) WITH ORDINALITY AS given (id, fence, seconds, stage, place)
),
held AS MATERIALIZED (
    SELECT line.found, given.fence, given.seconds, given.stage, given.place
    FROM (SELECT * FROM given ORDER BY id) AS given CROSS JOIN LATERAL (
        SELECT {id} AS found FROM {table} AS job
        WHERE {id} = given.id::{type id} AND {status} = {processing} AND {owner} = %(owner)s || '#' || given.fence
        FOR UPDATE SKIP LOCKED
    ) AS line
),
clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM held) AS locked),
renewed AS (
    UPDATE {table} AS job SET
        {column beat} = clock.now,
        {column stage} = coalesce(held.stage::{type stage}, {stage}),
        {column lease} = clock.now + {length of beat}
    FROM held, clock WHERE {id} = held.found
    RETURNING held.place
)
SELECT
    (SELECT coalesce(json_agg(place), '[]')::text FROM renewed),
    (
        SELECT coalesce(json_agg(given.place), '[]')::text FROM given JOIN {table} AS job
            ON {id} = given.id::{type id} AND {status} = {processing} AND {owner} = %(owner)s || '#' || given.fence
    ),
    (
        SELECT coalesce(json_agg(json_build_array({id}::text, split_part({owner}, '#', -1))), '[]')::text
        FROM {table} AS job
        WHERE {status} = {processing} AND {holder} = %(owner)s AND NOT EXISTS (
            SELECT 1 FROM given WHERE given.id = {id}::text AND given.fence = split_part({owner}, '#', -1)
        )
    )
