-- lease: take rows from the head of the line. It costs an attempt. The owner's name carries the fence, so that no column
-- of ours is needed. The lock on the queue's row makes a pause a barrier, as in the store's own lease.
WITH open AS MATERIALIZED (
    SELECT name FROM {schema}.queues WHERE name = %(queue)s AND paused_at IS NULL FOR SHARE
),
due AS MATERIALIZED (
    SELECT {id} AS found, {due} AS place FROM {table} AS job
    WHERE EXISTS (SELECT 1 FROM open) AND {status} = {queued}
        AND ({run_at} IS NULL OR {run_at} <= now())
    ORDER BY {due}, {id}
    LIMIT greatest(0, least(%(most)s, %(at_a_time)s - CASE WHEN %(at_a_time)s <= 1000000 THEN (
        SELECT count(*) FROM {table} AS job WHERE {status} = {processing}
    ) ELSE 0 END))
    FOR UPDATE OF job SKIP LOCKED
),
clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM due) AS locked),
leased AS (
    UPDATE {table} AS job SET
        {column owner} = %(owner)s || '#' || (extract(epoch FROM clock.now) * 1000000)::bigint,
        {column beat} = clock.now,
        {column started} = clock.now,
        {column updated} = clock.now,
        {column attempts} = coalesce({attempts}, 0) + 1,
        {column lease} = clock.now + {length},
        {column status} = {processing}
    FROM due, clock WHERE {id} = due.found
    RETURNING {facts}, row_to_json(job) AS row, due.place
)
SELECT coalesce(json_agg(leased ORDER BY place), '[]')::text FROM leased
