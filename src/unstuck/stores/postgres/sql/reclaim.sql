-- reclaim: take over leases that had run out when the reaper read the clock, the longest silent first. Blind time does
-- not count: a span in which the holder could not reach the store prolongs a lease by as much of it as came after the last beat,
-- or, without one, after its end. A lease that is renewed meanwhile is looked at again when its row's lock is had.
-- Then also takes the jobs that were not started in time.
WITH look AS MATERIALIZED (SELECT least(now(), %(as_of)s::timestamptz) AS at),
silent AS MATERIALIZED (
    SELECT {job}, jobs.seq, {size} AS size FROM {schema}.jobs
    WHERE status = 'processing' AND lease_expires_at < (SELECT at FROM look)
        AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
        AND lease_expires_at + make_interval(secs => (
            SELECT coalesce(sum(greatest(0, extract(epoch FROM
                look.at - make_interval(secs => span.until)
                - greatest(look.at - make_interval(secs => span.since), coalesce(last_heartbeat_at, lease_expires_at))
            ))), 0)::double precision
            FROM look, json_to_recordset(%(blind)s::json) AS span (since double precision, until double precision)
        )) < (SELECT at FROM look)
    ORDER BY lease_expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
expired AS MATERIALIZED (
    SELECT {job}, jobs.seq, {size} AS size FROM {schema}.jobs
    WHERE status = 'pending' AND attempt_count = 0 AND expires_at <= now()
        AND (%(queues)s::json IS NULL OR queue IN (SELECT json_array_elements_text(%(queues)s::json)))
    ORDER BY expires_at
    LIMIT %(limit)s - (SELECT count(*) FROM silent)
    FOR UPDATE SKIP LOCKED
),
found AS MATERIALIZED (SELECT * FROM silent UNION ALL SELECT * FROM expired),
{overtake}
