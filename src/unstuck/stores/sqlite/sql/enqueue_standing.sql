-- enqueue_standing: the job that stands for a key, whether nobody ever leased it, its content, and whether the new job is there.
SELECT spacing.job, coalesce(job.status = 'pending' AND job.fence = 0, 0), job.digest,
    EXISTS (SELECT 1 FROM job AS new WHERE new.id = :id AND new.queue = :queue)
FROM spacing LEFT JOIN job ON job.id = spacing.job AND job.queue = spacing.queue
WHERE spacing.queue = :queue AND spacing.key = :key AND spacing.until > :now
