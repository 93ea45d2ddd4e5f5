-- orphaned: jobs of one owner known to be dead, as they are.
SELECT seq FROM job
WHERE status = 'processing' AND owner = :of
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
ORDER BY lease_until
LIMIT :limit
