-- work: is there a row to lease, and in how many seconds does the next one become due?
SELECT
    coalesce(bool_or(line.wait <= 0), false), min(line.wait) FILTER (WHERE line.wait > 0)
FROM (
    SELECT coalesce(extract(epoch FROM {run_at or null} - clock_timestamp()), 0)::double precision AS wait FROM {table} AS job
    WHERE {status} = {queued} AND NOT EXISTS (
        SELECT 1 FROM {schema}.queues WHERE queues.name = %(queue)s AND paused_at IS NOT NULL
    )
    ORDER BY {due}
    LIMIT 1
) AS line
