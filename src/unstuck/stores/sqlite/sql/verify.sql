-- verify: jobs that break a rule which must always hold, as rule, queue and id. The table's own CHECKs forbid
-- most of these to honest writers; a file can be edited by others.
SELECT 'a state is one of four', queue, id FROM job
WHERE status NOT IN ('pending', 'processing', 'completed', 'failed')
UNION ALL
SELECT 'a processing job has an owner and a fence', queue, id FROM job
WHERE status = 'processing' AND (owner IS NULL OR fence <= 0)
UNION ALL
SELECT 'only a processing job has an owner or a lease', queue, id FROM job
WHERE status <> 'processing' AND coalesce(owner, lease_until, heartbeat_at) IS NOT NULL
UNION ALL
SELECT 'finished means finished_at, and nothing else does', queue, id FROM job
WHERE (finished_at IS NOT NULL) <> (status IN ('completed', 'failed'))
UNION ALL
SELECT 'only a job that waits has a place in line', queue, id FROM job
WHERE rank IS NOT NULL AND status <> 'pending'
UNION ALL
SELECT 'a place in line is that of its time and priority', queue, id FROM job
WHERE rank IS NOT NULL AND rank <> run_at - 60000 * priority
UNION ALL
SELECT 'crashes are attempts', queue, id FROM job WHERE crashes < 0 OR crashes > attempts
UNION ALL
SELECT 'attempts stay within their budget', queue, id FROM job
WHERE attempts > max_attempts + coalesce(max_crashes, 0)
UNION ALL
SELECT 'no lease was ended that was not granted', queue, id FROM job WHERE settled_fence > fence
UNION ALL
SELECT 'a failed job says why', queue, id FROM job WHERE status = 'failed' AND error IS NULL
UNION ALL
SELECT 'payload, progress, result and error are JSON', queue, id FROM job
WHERE NOT json_valid(payload) OR NOT json_valid(coalesce(progress, 'null'))
    OR NOT json_valid(coalesce(result, 'null')) OR NOT json_valid(coalesce(error, 'null'))
UNION ALL
SELECT 'events die with their job', event.queue, event.job FROM event
LEFT JOIN job ON job.id = event.job AND job.queue = event.queue
WHERE event.job IS NOT NULL AND job.id IS NULL
LIMIT :limit
