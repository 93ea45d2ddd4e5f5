-- next_end: in how many seconds the next lease ends that has not ended yet, and in how many the next job expires.
(SELECT extract(epoch FROM lease_expires_at - clock_timestamp())::double precision FROM {schema}.jobs
WHERE status = 'processing' AND lease_expires_at >= now()
    AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
ORDER BY lease_expires_at
LIMIT 1)
UNION ALL
(SELECT extract(epoch FROM expires_at - clock_timestamp())::double precision FROM {schema}.jobs
WHERE status = 'pending' AND attempt_count = 0 AND expires_at > now()
    AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
ORDER BY expires_at
LIMIT 1)
