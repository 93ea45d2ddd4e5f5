-- reclaim: take over leases that ran out, the longest silent first. Blind time does not count: a span in which the
-- holder could not be heard prolongs a lease by as much of it as came after the last beat. A lease that is renewed
-- meanwhile is looked at again when its row's lock is had.
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
{overtake}
