-- count: jobs by queue and kind, each kind from its own index.
SELECT queue, 'pending', count(*) FROM job WHERE rank IS NOT NULL GROUP BY queue
UNION ALL
SELECT queue, 'pending', count(*) FROM job WHERE status = 'pending' AND rank IS NULL GROUP BY queue
UNION ALL
SELECT queue, 'delayed', count(*) FROM job
WHERE status = 'pending' AND rank IS NULL AND run_at > :now GROUP BY queue
UNION ALL
SELECT queue, 'processing', count(*) FROM job WHERE status = 'processing' GROUP BY queue
UNION ALL
SELECT queue, 'expired', count(*) FROM job WHERE status = 'processing' AND lease_until < :now GROUP BY queue
UNION ALL
SELECT queue, status, count(*) FROM job WHERE finished_at IS NOT NULL GROUP BY status, queue
UNION ALL
SELECT queue, 'cancelled', count(*) FROM job
WHERE finished_at IS NOT NULL AND status = 'failed' AND settled = 'cancelled' GROUP BY queue
UNION ALL
SELECT queue, 'waited', (:now - (
    SELECT run_at FROM job AS head WHERE head.queue = job.queue AND head.rank IS NOT NULL ORDER BY rank, seq LIMIT 1
)) / 1000.0 FROM job WHERE rank IS NOT NULL GROUP BY queue
UNION ALL -- those that have become due and were not given their position in line, because nobody asked
SELECT queue, 'waited', (:now - min(run_at)) / 1000.0 FROM job WHERE status = 'pending' AND rank IS NULL AND run_at <= :now GROUP BY queue
