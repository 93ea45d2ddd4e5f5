-- settle: end leases. A worker's applies only for the fence that holds the row; a reaper has locked the row before.
-- What goes back without a delay keeps its time, and with it its old position in line. Answers which were applied.
WITH ended AS (
    SELECT * FROM ROWS FROM (
        json_to_recordset(%(outcomes)s::json) AS (
            id text, fence text, status text, attempts integer, refund integer, delay double precision, code text,
            reason text, message text
        )
    ) WITH ORDINALITY AS ended (id, fence, status, attempts, refund, delay, code, reason, message, place)
),
-- In the order of ids, so that no two batches wait for each other.
held AS MATERIALIZED (
    SELECT line.*, ended.fence, ended.status, ended.attempts, ended.refund, ended.delay, ended.code, ended.reason,
        ended.message, ended.place
    FROM (SELECT * FROM ended ORDER BY id) AS ended CROSS JOIN LATERAL (
        SELECT {id} AS found FROM {table} AS job
        WHERE {id} = ended.id::{type id} AND {status} = {processing}
            AND (%(locked)s OR split_part({owner}::text, '#', -1) = ended.fence)
        FOR UPDATE
    ) AS line
),
-- One time for all of them, from when their locks were had.
clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM held) AS locked),
applied AS (
    UPDATE {table} AS job SET
        {column owner} = {none owner},
        {column beat} = {none beat},
        {column run_at} = CASE WHEN held.delay > 0 THEN clock.now + make_interval(secs => held.delay) ELSE {run_at} END,
        {column fail_code} = CASE WHEN held.status = {failed} THEN held.code::{type fail_code} ELSE {fail_code} END,
        {column fail_reason} = CASE WHEN held.status = {failed} THEN held.reason::{type fail_reason} ELSE {fail_reason} END,
        {column error_code} = CASE WHEN held.status = {failed} THEN held.code::{type error_code} ELSE {error_code} END,
        {column error_message} = CASE WHEN held.status = {failed} THEN held.message::{type error_message} ELSE {error_message} END,
        {column updated} = clock.now,
        {column attempts} = greatest(0, coalesce(held.attempts, {attempts}) - held.refund),
        {column lease} = {none lease},
        {column status} = held.status::{type status}
    FROM held, clock WHERE {id} = held.found
    RETURNING held.place
)
SELECT coalesce(json_agg(place), '[]')::text, (SELECT now FROM clock) FROM applied
