-- reclaim_of: take over the leases of owners known to be dead, whether they ran out or not.
WITH found AS MATERIALIZED (
    SELECT {job}, jobs.seq, {size} AS size FROM {schema}.jobs
    WHERE status = 'processing' AND locked_by = ANY (%(of)s)
        AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
    ORDER BY lease_expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
{overtake}
