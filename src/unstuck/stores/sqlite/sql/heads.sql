-- heads: the queues that have jobs in line, or delayed ones that are due by a time. NULL if there are more than a bound. It
-- jumps along the indexes from queue to queue, so that it costs nothing to know of many others that have none.
WITH RECURSIVE ready (queue) AS (
    SELECT min(queue) FROM job WHERE rank IS NOT NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM job WHERE rank IS NOT NULL AND queue > ready.queue)
    FROM ready WHERE ready.queue IS NOT NULL
    LIMIT :most + 2
),
delayed (queue) AS (
    SELECT min(queue) FROM job WHERE status = 'pending' AND rank IS NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM job WHERE status = 'pending' AND rank IS NULL AND queue > delayed.queue)
    FROM delayed WHERE delayed.queue IS NOT NULL
    LIMIT :most + 2
)
SELECT CASE WHEN max((SELECT count(queue) FROM ready), (SELECT count(queue) FROM delayed)) <= :most THEN (
    SELECT json_group_array(queue) FROM (
        SELECT queue FROM ready WHERE queue IS NOT NULL
        UNION ALL
        SELECT queue FROM delayed WHERE EXISTS (
            SELECT 1 FROM job
            WHERE job.queue = delayed.queue AND status = 'pending' AND rank IS NULL AND run_at <= :until
        )
    )
) END
