-- lease: take rows from the head of the line. It costs an attempt. The owner's name carries the fence, so that no column
-- of ours is needed. The lock on the queue's row makes a pause a barrier, as in the store's own lease. A row is new if no
-- attempt was counted, and none begun: a release gives the attempt back. All that are due are sorted here, so that it costs
-- no more to pass some of them by.
WITH open AS MATERIALIZED (
    SELECT name FROM {schema}.queues WHERE name = %(queue)s AND paused_at IS NULL FOR SHARE
),
due AS MATERIALIZED (
    SELECT {id} AS found, {due} AS place, octet_length(job::text) AS size FROM {table} AS job
    WHERE EXISTS (SELECT 1 FROM open) AND {status} = {queued}
        AND ({run_at} IS NULL OR {run_at} <= now())
        AND (NOT %(only_new)s OR coalesce({attempts}, 0) = 0)
        AND (NOT %(only_new)s OR {started} IS NULL)
    ORDER BY {due}, {id}
    LIMIT greatest(0, least(%(most)s, %(at_a_time)s - CASE WHEN %(at_a_time)s <= 1000000 THEN (
        SELECT count(*) FROM {table} AS job WHERE {status} = {processing}
    ) ELSE 0 END))
    FOR UPDATE OF job SKIP LOCKED
),
-- As many as one answer carries.
head AS MATERIALIZED (
    SELECT * FROM (
        SELECT *, sum(size) OVER (ORDER BY place, found ROWS UNBOUNDED PRECEDING) - size AS before FROM due
    ) AS summed
    WHERE before < %(bytes)s
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
    FROM head, clock WHERE {id} = head.found
    RETURNING {facts}, row_to_json(job) AS row, head.place
)
SELECT coalesce(json_agg(leased ORDER BY place), '[]')::text FROM leased
