-- orphaned: jobs of owners known to be dead, as they are.
SELECT seq, octet_length(payload) FROM job
WHERE status = 'processing' AND owner IN (SELECT value FROM json_each(:of))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
ORDER BY lease_until
LIMIT :limit
