-- reclaim_of: take over the leases of one owner known to be dead, whether they ran out or not.
WITH lapsed AS MATERIALIZED (
    SELECT {job}, jobs.seq FROM {schema}.jobs
    WHERE status = 'processing' AND locked_by = %(of)s
        AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
    ORDER BY lease_expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
-- One time for all of them, from when their locks were had.
clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM lapsed) AS locked),
taken AS (
    UPDATE {schema}.jobs SET
        fence = greatest(jobs.fence + 1, (extract(epoch FROM clock.now) * 1000)::bigint), locked_by = %(owner)s,
        lease_expires_at = clock.now + make_interval(secs => %(seconds)s), last_heartbeat_at = clock.now
    FROM lapsed, clock WHERE jobs.id = lapsed.id AND jobs.queue = lapsed.queue
    RETURNING jobs.fence, row_to_json(lapsed) AS was, lapsed.lease_until, lapsed.seq
)
SELECT json_agg(was ORDER BY lease_until, seq)::text, json_agg(fence ORDER BY lease_until, seq)::text FROM taken
