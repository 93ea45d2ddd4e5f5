-- next_end: when the next lease ends that has not ended yet, or the next job expires.
SELECT min(at) FROM (
    SELECT min(lease_until) AS at FROM job
    WHERE status = 'processing' AND lease_until >= :now
        AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    UNION ALL
    SELECT min(expires_at) FROM job
    WHERE status = 'pending' AND attempts = 0 AND expires_at IS NOT NULL AND expires_at > :now
        AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
)
