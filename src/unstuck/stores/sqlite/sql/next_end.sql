-- next_end: when the next lease ends that has not ended yet.
SELECT min(lease_until) FROM job
WHERE status = 'processing' AND lease_until >= :now
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
