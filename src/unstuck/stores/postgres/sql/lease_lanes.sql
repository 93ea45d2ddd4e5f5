-- lease_lanes: lease where lanes take turns. A job's turn is how many of its lane would be running before it; jobs
-- without a lane wait for no one's turn. If only new ones are asked for, the turns of jobs that somebody had before are
-- left to them. Runs behind crowd, so that nobody else leases from these queues meanwhile.
WITH RECURSIVE share AS (
    SELECT * FROM json_to_recordset(%(shares)s::json) AS share (
        queue text, seconds double precision, most integer, at_a_time integer, per_lane integer, only_new boolean,
        turn double precision, step double precision
    )
),
open AS MATERIALIZED (
    SELECT share.*, share.at_a_time - (
        SELECT count(*) FROM {schema}.jobs WHERE jobs.status = 'processing' AND jobs.queue = share.queue
    ) AS free
    FROM share JOIN (
        SELECT name FROM {schema}.queues
        WHERE name IN (SELECT queue FROM share) AND paused_at IS NULL
        ORDER BY name
        FOR SHARE
    ) AS unpaused ON unpaused.name = share.queue
),
-- How many to take, and how many to look at: if only new ones are asked for, also some behind them.
room AS MATERIALIZED (
    SELECT queue, seconds, per_lane, only_new, turn, step, greatest(0, least(most, %(limit)s, free)) AS most, greatest(0, least(
        CASE WHEN only_new AND per_lane IS NULL THEN most + %(passed_by)s ELSE least(most, %(limit)s) END, free
    )) AS reach
    FROM open
),
lane (queue, name) AS (
    SELECT queue, (SELECT min(lane) FROM {schema}.jobs WHERE jobs.queue = room.queue AND rank IS NOT NULL AND lane IS NOT NULL)
    FROM room WHERE per_lane IS NOT NULL
    UNION ALL
    SELECT queue, (
        SELECT min(jobs.lane) FROM {schema}.jobs
        WHERE jobs.queue = lane.queue AND rank IS NOT NULL AND jobs.lane IS NOT NULL AND jobs.lane > lane.name
    )
    FROM lane WHERE lane.name IS NOT NULL
),
-- How many each lane has running, as a map that can be looked into for each of many lanes.
running AS MATERIALIZED (
    SELECT queue, jsonb_object_agg(lane, number) AS lanes FROM (
        SELECT queue, lane, count(*) AS number FROM {schema}.jobs
        WHERE status = 'processing' AND lane IS NOT NULL GROUP BY queue, lane
    ) AS counted
    GROUP BY queue
),
busy AS MATERIALIZED (
    SELECT room.queue, room.per_lane, room.most, lane.name, coalesce((running.lanes ->> lane.name)::integer, 0) AS running
    FROM room JOIN lane ON lane.queue = room.queue LEFT JOIN running ON running.queue = room.queue
    WHERE lane.name IS NOT NULL
),
turns AS (
    SELECT busy.queue, busy.running + line.behind AS turn, line.rank, line.seq
    FROM busy CROSS JOIN LATERAL (
        SELECT rank, seq, row_number() OVER (ORDER BY rank, seq) - 1 AS behind FROM (
            SELECT rank, seq FROM {schema}.jobs
            WHERE jobs.queue = busy.queue AND jobs.lane = busy.name AND jobs.lane IS NOT NULL AND rank IS NOT NULL
                AND {in_time}
            ORDER BY rank, seq
            LIMIT least(busy.most, greatest(0, busy.per_lane - busy.running))
        ) AS first
    ) AS line
    UNION ALL
    SELECT room.queue, 0, line.rank, line.seq FROM room CROSS JOIN LATERAL (
        SELECT rank, seq FROM {schema}.jobs
        WHERE jobs.queue = room.queue AND rank IS NOT NULL AND (room.per_lane IS NULL OR jobs.lane IS NULL)
            AND {in_time}
        ORDER BY rank, seq
        LIMIT room.reach
    ) AS line
),
-- Among queues their turns, and then the positions, decide how many of each are leased, within one the turns of lanes decide which.
chosen AS (
    SELECT *,
        row_number() OVER (PARTITION BY queue ORDER BY turn, rank, seq) AS by_turn,
        row_number() OVER (PARTITION BY queue ORDER BY rank, seq) AS by_place
    FROM (
        SELECT turns.*, room.most, room.reach, room.only_new,
            row_number() OVER (PARTITION BY turns.queue ORDER BY turns.turn, rank, seq) AS number
        FROM turns JOIN room USING (queue)
    ) AS numbered
    WHERE number <= reach AND (NOT only_new OR NOT EXISTS (
        SELECT 1 FROM {schema}.jobs
        WHERE (jobs.queue, jobs.rank, jobs.seq) = (numbered.queue, numbered.rank, numbered.seq) AND settled IS NOT NULL
    ))
),
best AS MATERIALIZED (
    SELECT by_turn.queue, by_turn.rank, by_turn.seq, place.rank AS place, place.seq AS place_seq,
        room.turn + room.step * (by_turn.by_turn - 1) AS stands
    FROM chosen AS by_turn
    JOIN chosen AS place ON place.queue = by_turn.queue AND place.by_place = by_turn.by_turn
    JOIN room ON room.queue = by_turn.queue
    WHERE by_turn.by_turn <= by_turn.most
    ORDER BY stands, place.rank, place.seq
    LIMIT %(limit)s
),
front AS MATERIALIZED (
    SELECT jobs.id, best.*, {size} AS size
    FROM {schema}.jobs JOIN best USING (queue, rank, seq) WHERE jobs.rank IS NOT NULL
    ORDER BY jobs.id, jobs.queue
    FOR UPDATE OF jobs SKIP LOCKED
),
-- As many as one answer carries.
head AS MATERIALIZED (
    SELECT * FROM (
        SELECT *, sum(size) OVER (ORDER BY stands, place, place_seq ROWS UNBOUNDED PRECEDING) - size AS before FROM front
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
        locked_by = %(owner)s, lease_expires_at = clock.now + make_interval(secs => room.seconds),
        last_heartbeat_at = clock.now, started_at = clock.now, stage = NULL, progress = NULL
    FROM clock, head JOIN room USING (queue)
    WHERE jobs.id = head.id AND jobs.queue = head.queue
        AND (jobs.expires_at IS NULL OR jobs.expires_at > clock.now OR jobs.attempt_count > 0)
    RETURNING {row}, head.stands, head.place, head.place_seq
),
{answer}
