-- promote: give delayed jobs that have become due their position in line, a bounded number at a time.
UPDATE job SET rank = run_at - 60000 * priority
WHERE seq IN (
    SELECT seq FROM job
    WHERE queue = :queue AND status = 'pending' AND rank IS NULL AND run_at <= :now
    ORDER BY run_at
    LIMIT :limit
)
