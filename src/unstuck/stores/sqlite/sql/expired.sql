-- expired: jobs that were not started in time, as they are; those first that have been over longest.
SELECT seq, octet_length(payload) FROM job
WHERE status = 'pending' AND attempts = 0 AND expires_at IS NOT NULL AND expires_at <= :now
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
ORDER BY expires_at
LIMIT :limit
