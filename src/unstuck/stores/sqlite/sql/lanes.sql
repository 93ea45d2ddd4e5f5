-- lanes: the line of a queue whose lanes take turns, as lists of turn, rank, number and bytes of payload.
-- A job's turn is how many of its lane would be running before it. Jobs without a lane wait for no one's turn. If only new
-- ones are asked for, the turns of jobs that somebody had before are left to them.
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
SELECT json_group_array(json_array(
    turn, rank, seq, (SELECT octet_length(payload) FROM job WHERE job.seq = turns.seq)
)) FROM (
    SELECT busy.running + turns.key AS turn, turns.value ->> 0 AS rank, turns.value ->> 1 AS seq
    FROM busy, json_each((
        SELECT json_group_array(json_array(rank, seq)) FROM (
            SELECT rank, seq FROM job
            WHERE queue = :queue AND lane IS NOT NULL AND lane = busy.name AND rank IS NOT NULL
                AND (expires_at IS NULL OR expires_at > :now OR attempts > 0)
            ORDER BY rank, seq
            LIMIT min(:limit, :per_lane)
        )
    )) AS turns
    WHERE busy.running + turns.key < :per_lane
    UNION ALL
    SELECT 0, rank, seq FROM (
        SELECT rank, seq FROM job INDEXED BY job_lane
        WHERE queue = :queue AND lane IS NULL AND rank IS NOT NULL
            AND (expires_at IS NULL OR expires_at > :now OR attempts > 0)
        ORDER BY rank, seq
        LIMIT :limit
    )
    ORDER BY turn, rank, seq
    LIMIT :limit
) AS turns
WHERE NOT EXISTS (SELECT 1 FROM queue WHERE name = :queue AND paused_at IS NOT NULL)
    AND (NOT :only_new OR (SELECT settled FROM job WHERE job.seq = turns.seq) IS NULL)
