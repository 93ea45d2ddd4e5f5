-- heads: the queues that have jobs in line, or delayed ones, which must be due unless any time will do. No row if there are
-- more than a bound. It jumps along the indexes from queue to queue, so that it costs nothing to know of many others that have none.
WITH RECURSIVE ready (queue) AS (
    (SELECT queue FROM {schema}.jobs WHERE rank IS NOT NULL ORDER BY queue, rank, seq LIMIT 1)
    UNION ALL
    SELECT next.queue FROM ready CROSS JOIN LATERAL (
        SELECT queue FROM {schema}.jobs WHERE rank IS NOT NULL AND jobs.queue > ready.queue ORDER BY queue, rank, seq LIMIT 1
    ) AS next
),
delayed (queue, run_at) AS (
    (
        SELECT queue, next_earliest_run_at FROM {schema}.jobs WHERE status = 'pending' AND rank IS NULL
        ORDER BY queue, next_earliest_run_at LIMIT 1
    )
    UNION ALL
    SELECT next.* FROM delayed CROSS JOIN LATERAL (
        SELECT queue, next_earliest_run_at FROM {schema}.jobs
        WHERE status = 'pending' AND rank IS NULL AND jobs.queue > delayed.queue
        ORDER BY queue, next_earliest_run_at LIMIT 1
    ) AS next
),
in_line AS MATERIALIZED (SELECT queue, true AS due FROM ready LIMIT %(most)s + 1),
late AS MATERIALIZED (
    SELECT queue, %(any_time)s OR run_at <= (SELECT clock_timestamp()) AS due FROM delayed LIMIT %(most)s + 1
)
SELECT coalesce(json_agg(queue) FILTER (WHERE due), '[]')::text FROM (SELECT * FROM in_line UNION ALL SELECT * FROM late) AS found
HAVING greatest((SELECT count(*) FROM in_line), (SELECT count(*) FROM late)) <= %(most)s
