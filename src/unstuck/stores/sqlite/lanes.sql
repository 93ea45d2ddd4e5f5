-- lanes: the line of a queue whose lanes take turns, as triples of turn, rank and number.
-- A job's turn is how many of its lane would be running before it. Jobs without a lane wait for no one's turn;
-- they are looked for at the head of the line only, so that many laned ones do not make this slow.
WITH RECURSIVE lane (name) AS (
    SELECT min(lane) FROM job WHERE queue = :queue AND rank IS NOT NULL AND lane IS NOT NULL
    UNION ALL
    SELECT (
        SELECT min(lane) FROM job
        WHERE queue = :queue AND rank IS NOT NULL AND lane IS NOT NULL AND lane > lane.name
    )
    FROM lane WHERE lane.name IS NOT NULL
),
busy (name, running) AS (
    SELECT name, (
        SELECT count(*) FROM job WHERE status = 'processing' AND queue = :queue AND lane IS NOT NULL AND lane = lane.name
    )
    FROM lane WHERE name IS NOT NULL
)
SELECT json_group_array(json_array(turn, rank, seq)) FROM (
    SELECT busy.running + turns.key AS turn, turns.value ->> 0 AS rank, turns.value ->> 1 AS seq
    FROM busy, json_each((
        SELECT json_group_array(json_array(rank, seq)) FROM (
            SELECT rank, seq FROM job
            WHERE queue = :queue AND lane IS NOT NULL AND lane = busy.name AND rank IS NOT NULL
            ORDER BY rank, seq
            LIMIT max(0, min(:limit, :per_lane - busy.running))
        )
    )) AS turns
    UNION ALL
    SELECT 0, rank, seq FROM (
        SELECT rank, seq, lane FROM job WHERE queue = :queue AND rank IS NOT NULL ORDER BY rank, seq LIMIT 1000
    )
    WHERE lane IS NULL
    ORDER BY turn, rank, seq
    LIMIT :limit
)
WHERE NOT EXISTS (SELECT 1 FROM queue WHERE name = :queue AND paused_at IS NOT NULL)
