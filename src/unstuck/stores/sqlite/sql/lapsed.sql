-- lapsed: jobs whose lease had run out when the reaper read the clock, as they are; the longest silent first. Blind time
-- does not count: a span in which the holder could not reach the store prolongs the lease by as much of it as came after its
-- last beat, or, without one, after its end.
SELECT seq, octet_length(payload) FROM job
WHERE status = 'processing' AND lease_until < :then
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    AND lease_until + (
        SELECT coalesce(sum(max(0, (span.value ->> 1) - max(span.value ->> 0, coalesce(heartbeat_at, lease_until)))), 0)
        FROM json_each(:blind) AS span
    ) < :then
ORDER BY lease_until
LIMIT :limit
