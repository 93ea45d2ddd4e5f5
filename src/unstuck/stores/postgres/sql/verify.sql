-- verify: jobs that break a rule which must always hold, as rule, queue and id. The table's own CHECKs forbid most of
-- these to everybody; a constraint can be dropped by others.
SELECT 'a state is one of four', queue, id FROM {schema}.jobs
WHERE status NOT IN ('pending', 'processing', 'completed', 'failed')
UNION ALL
SELECT 'a processing job has an owner and a fence', queue, id FROM {schema}.jobs
WHERE status = 'processing' AND (locked_by IS NULL OR fence <= 0)
UNION ALL
SELECT 'only a processing job has an owner or a lease', queue, id FROM {schema}.jobs
WHERE status <> 'processing' AND (locked_by IS NOT NULL OR coalesce(lease_expires_at, last_heartbeat_at) IS NOT NULL)
UNION ALL
SELECT 'finished means finished_at, and nothing else does', queue, id FROM {schema}.jobs
WHERE (finished_at IS NOT NULL) <> (status IN ('completed', 'failed'))
UNION ALL
SELECT 'only a job that waits has a place in line', queue, id FROM {schema}.jobs
WHERE rank IS NOT NULL AND status <> 'pending'
UNION ALL
SELECT 'a place in line is that of its time and priority', queue, id FROM {schema}.jobs
WHERE rank IS NOT NULL AND rank <> next_earliest_run_at - make_interval(mins => priority)
UNION ALL
SELECT 'crashes are attempts', queue, id FROM {schema}.jobs WHERE crashes < 0 OR crashes > attempt_count
UNION ALL
SELECT 'attempts stay within their budget', queue, id FROM {schema}.jobs
WHERE attempt_count > max_attempts + coalesce(max_crashes, 0)
UNION ALL
SELECT 'no lease was ended that was not granted', queue, id FROM {schema}.jobs WHERE settled_fence > fence
UNION ALL
SELECT 'a failed job says why', queue, id FROM {schema}.jobs WHERE status = 'failed' AND error IS NULL
UNION ALL
SELECT 'events die with their job', job_events.queue, job_events.job_id FROM {schema}.job_events
LEFT JOIN {schema}.jobs ON jobs.id = job_events.job_id AND jobs.queue = job_events.queue
WHERE job_events.job_id IS NOT NULL AND jobs.id IS NULL
LIMIT %(limit)s
