-- reclaim: take over leases that ran out, the longest silent first. Blind time does not count: a span in which the
-- holder could not be heard prolongs a lease by as much of it as came after the last beat. A lease that is renewed
-- meanwhile is looked at again when its row's lock is had. Attempts were counted when the job was leased.
WITH lapsed AS MATERIALIZED (
    SELECT {job}, jobs.seq FROM {schema}.jobs
    WHERE status = 'processing' AND lease_expires_at < now()
        AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
        AND lease_expires_at + make_interval(secs => (
            SELECT coalesce(sum(greatest(0, extract(epoch FROM
                now() - make_interval(secs => span.until)
                - greatest(now() - make_interval(secs => span.since), coalesce(last_heartbeat_at, '-infinity'))
            ))), 0)::double precision
            FROM json_to_recordset(%(blind)s::json) AS span (since double precision, until double precision)
        )) < now()
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
