-- work: is there anything to lease, and in how many seconds does the next delayed job become due?
WITH open AS (
    SELECT name FROM json_array_elements_text(%(queues)s::json) AS wanted (name)
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.queues WHERE queues.name = wanted.name AND paused_at IS NOT NULL)
)
SELECT
    EXISTS (
        SELECT 1 FROM open CROSS JOIN LATERAL (
            SELECT 1 FROM {schema}.jobs WHERE queue = open.name AND rank IS NOT NULL AND {in_time} ORDER BY rank, seq LIMIT 1
        ) AS line
    ),
    (
        SELECT extract(epoch FROM min(next.run_at) - clock_timestamp())::double precision
        FROM open CROSS JOIN LATERAL (
            SELECT next_earliest_run_at AS run_at FROM {schema}.jobs
            WHERE queue = open.name AND status = 'pending' AND rank IS NULL
            ORDER BY next_earliest_run_at LIMIT 1
        ) AS next
    )
