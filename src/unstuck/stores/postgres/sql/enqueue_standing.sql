-- enqueue_standing: the job that stands for a key, whether it can be replaced because nobody ever leased it, its content, and
-- whether the new job is there.
-- Only one that can is locked, so that nobody leases it before that is done. Whoever settles a job may hold its lock and wait for
-- that of the key.
SELECT spacing.job, waiting.id IS NOT NULL, job.digest,
    EXISTS (SELECT FROM {schema}.jobs AS new WHERE new.id = %(id)s AND new.queue = spacing.queue)
FROM {schema}.spacing
LEFT JOIN {schema}.jobs AS job ON job.id = spacing.job AND job.queue = spacing.queue
LEFT JOIN LATERAL (
    SELECT id FROM {schema}.jobs
    WHERE jobs.id = spacing.job AND jobs.queue = spacing.queue AND status = 'pending' AND fence = 0 AND %(replaces)s
    FOR UPDATE
) AS waiting ON true
WHERE spacing.queue = %(queue)s AND spacing.key = %(key)s AND spacing.until > clock_timestamp()
