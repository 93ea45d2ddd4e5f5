-- count: jobs by queue and kind, each kind from its own index.
SELECT queue, 'pending', count(*)::double precision FROM {schema}.jobs WHERE rank IS NOT NULL GROUP BY queue
UNION ALL
SELECT queue, 'pending', count(*) FROM {schema}.jobs WHERE status = 'pending' AND rank IS NULL GROUP BY queue
UNION ALL
SELECT queue, 'delayed', count(*) FROM {schema}.jobs
WHERE status = 'pending' AND rank IS NULL AND next_earliest_run_at > now() GROUP BY queue
UNION ALL
SELECT queue, 'processing', count(*) FROM {schema}.jobs WHERE status = 'processing' GROUP BY queue
UNION ALL
SELECT queue, 'expired', count(*) FROM {schema}.jobs WHERE status = 'processing' AND lease_expires_at < now() GROUP BY queue
UNION ALL
SELECT queue, 'completed', count(*) FROM {schema}.jobs WHERE finished_at IS NOT NULL AND status = 'completed' GROUP BY queue
UNION ALL
SELECT queue, 'failed', count(*) FROM {schema}.jobs WHERE status = 'failed' GROUP BY queue
UNION ALL
SELECT queue, 'cancelled', count(*) FROM {schema}.jobs WHERE status = 'failed' AND settled = 'cancelled' GROUP BY queue
UNION ALL
SELECT waiting.queue, 'waited', extract(epoch FROM now() - head.next_earliest_run_at)
FROM (SELECT DISTINCT queue FROM {schema}.jobs WHERE rank IS NOT NULL) AS waiting CROSS JOIN LATERAL (
    SELECT next_earliest_run_at FROM {schema}.jobs
    WHERE jobs.queue = waiting.queue AND rank IS NOT NULL ORDER BY rank, seq LIMIT 1
) AS head
UNION ALL -- those that have become due and were not given their position in line: nobody asked, or their rows are locked
SELECT queue, 'waited', extract(epoch FROM now() - min(next_earliest_run_at)) FROM {schema}.jobs
WHERE status = 'pending' AND rank IS NULL AND next_earliest_run_at <= now() GROUP BY queue
