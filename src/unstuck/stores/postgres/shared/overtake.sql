-- overtake: take over the leases `lapsed`, which are locked, and answer with the jobs as they were and their new fences.
-- One time for all of them, from when their locks were had. Attempts were counted when the job was leased.
clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM lapsed) AS locked),
taken AS (
    UPDATE {schema}.jobs SET
        fence = greatest(jobs.fence + 1, (extract(epoch FROM clock.now) * 1000)::bigint), locked_by = %(owner)s,
        lease_expires_at = clock.now + make_interval(secs => %(seconds)s), last_heartbeat_at = clock.now
    FROM lapsed, clock WHERE jobs.id = lapsed.id AND jobs.queue = lapsed.queue
    RETURNING jobs.fence, row_to_json(lapsed) AS was, lapsed.lease_until, lapsed.seq
)
SELECT json_agg(was ORDER BY lease_until, seq)::text, json_agg(fence ORDER BY lease_until, seq)::text FROM taken
