-- lease: take jobs from the heads of the queues' lines. It costs an attempt; the fence grows even if the clock went
-- back. The lock on the queue's row makes a pause a barrier: a lease that waited for one sees it once it has the lock.
WITH share AS (
    SELECT queue, make_interval(secs => seconds) AS length, most, at_a_time, only_new, turn, step
    FROM json_to_recordset(%(shares)s::json) AS share (
        queue text, seconds double precision, most integer, at_a_time integer, only_new boolean,
        turn double precision, step double precision
    )
),
open AS MATERIALIZED (
    SELECT share.*, CASE WHEN share.at_a_time IS NOT NULL THEN greatest(
        0,
        share.at_a_time - (SELECT count(*) FROM {schema}.jobs WHERE jobs.status = 'processing' AND jobs.queue = share.queue)
    ) END AS free
    FROM share JOIN (
        SELECT name FROM {schema}.queues
        WHERE name IN (SELECT queue FROM share) AND paused_at IS NULL
        ORDER BY name
        FOR SHARE
    ) AS unpaused ON unpaused.name = share.queue
),
-- Where to look no further: of only new jobs no more than these are looked at, nor beyond those there is room for.
room AS MATERIALIZED (
    SELECT open.queue, open.length, open.only_new, open.turn, open.step, least(open.most, open.free) AS most,
        coalesce(beyond.rank, 'infinity') AS end_rank, coalesce(beyond.seq, 0) AS end_seq
    FROM open LEFT JOIN LATERAL (
        SELECT rank, seq FROM {schema}.jobs
        WHERE open.only_new AND jobs.queue = open.queue AND rank IS NOT NULL AND {in_time}
        ORDER BY rank, seq
        OFFSET least(open.most + %(passed_by)s, open.free) LIMIT 1
    ) AS beyond ON true
),
quota AS MATERIALIZED (
    SELECT queue, length, only_new, turn, step, end_rank, end_seq, least(most, %(limit)s) AS most
    FROM room {among_several}
),
-- Where a row lies is good for as long as its lock: one that was moved just before is left for the next time.
front AS MATERIALIZED (
    SELECT line.*, quota.length{turns} FROM quota CROSS JOIN LATERAL (
        SELECT ctid AS at, seq, rank, {size} AS size FROM {schema}.jobs
        WHERE jobs.queue = quota.queue AND rank IS NOT NULL AND (rank, seq) < (quota.end_rank, quota.end_seq)
            AND (jobs.settled IS NULL OR NOT quota.only_new) AND {in_time}
        ORDER BY rank, seq
        LIMIT quota.most
        FOR UPDATE SKIP LOCKED
    ) AS line
),
-- As many as one answer carries.
head AS MATERIALIZED (
    SELECT * FROM (
        SELECT *, sum(size) OVER (ORDER BY {stands}rank, seq ROWS UNBOUNDED PRECEDING) - size AS before FROM {standing}
    ) AS summed
    WHERE before < %(bytes)s
),
-- One time for all of them, from when their locks were had.
clock AS MATERIALIZED (
    SELECT now, (extract(epoch FROM now) * 1000)::bigint AS milliseconds
    FROM (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM head) AS locked OFFSET 0) AS read
),
leased AS (
    UPDATE {schema}.jobs SET
        status = 'processing', rank = NULL, attempt_count = attempt_count + 1,
        fence = greatest(fence + 1, clock.milliseconds),
        locked_by = %(owner)s, lease_expires_at = clock.now + head.length,
        last_heartbeat_at = clock.now, started_at = clock.now, stage = NULL, progress = NULL
    FROM head, clock WHERE jobs.ctid = head.at
        AND (jobs.expires_at IS NULL OR jobs.expires_at > clock.now OR jobs.attempt_count > 0)
    RETURNING {row}, {stands}head.rank AS place, head.seq AS place_seq
),
{answer}
