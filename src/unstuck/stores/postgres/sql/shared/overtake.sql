-- overtake: take over as many of the leases `found`, which are locked, as one answer carries, and answer with the jobs as
-- they were and their new fences. One time for all of them, from when their locks were had. Attempts were counted when the
-- job was leased; one that was not started in time has none.
lapsed AS MATERIALIZED (
    SELECT * FROM (SELECT *, sum(size) OVER (ORDER BY lease_until, seq ROWS UNBOUNDED PRECEDING) - size AS before FROM found) AS summed
    WHERE before < %(bytes)s
),
clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM found) AS locked),
taken AS (
    UPDATE {schema}.jobs SET
        status = 'processing', rank = NULL,
        fence = greatest(jobs.fence + 1, (extract(epoch FROM clock.now) * 1000)::bigint), locked_by = %(owner)s,
        lease_expires_at = clock.now + make_interval(secs => %(seconds)s), last_heartbeat_at = clock.now
    FROM lapsed, clock WHERE jobs.id = lapsed.id AND jobs.queue = lapsed.queue
    RETURNING jobs.fence, row_to_json(lapsed) AS was, lapsed.lease_until, lapsed.seq
)
SELECT json_agg(was ORDER BY lease_until, seq)::text, json_agg(fence ORDER BY lease_until, seq)::text FROM taken
