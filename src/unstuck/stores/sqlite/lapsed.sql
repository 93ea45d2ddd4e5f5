-- lapsed: jobs whose lease ran out, as they are; the longest silent first. Blind time does not count:
-- a span in which the holder could not be heard prolongs the lease by as much of it as came after its last beat.
SELECT seq FROM job
WHERE status = 'processing' AND lease_until < :now
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    AND lease_until + (
        SELECT coalesce(sum(max(0, (span.value ->> 1) - max(span.value ->> 0, coalesce(heartbeat_at, 0)))), 0)
        FROM json_each(:blind) AS span
    ) < :now
ORDER BY lease_until
LIMIT :limit
