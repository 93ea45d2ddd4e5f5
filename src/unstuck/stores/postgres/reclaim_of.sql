-- reclaim_of: take over the leases of one owner known to be dead, whether they ran out or not.
WITH lapsed AS MATERIALIZED (
    SELECT {job}, jobs.seq FROM {schema}.jobs
    WHERE status = 'processing' AND locked_by = %(of)s
        AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
    ORDER BY lease_expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
{overtake}
