-- next_end: in how many seconds the next lease ends that has not ended yet.
SELECT extract(epoch FROM lease_expires_at - clock_timestamp())::double precision FROM {schema}.jobs
WHERE status = 'processing' AND lease_expires_at >= now()
    AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
ORDER BY lease_expires_at
LIMIT 1
