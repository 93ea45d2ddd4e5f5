-- enqueue: add jobs unless their addresses are taken, in the order given. What many jobs share is a kind, sent once.
-- Only due jobs get a rank. Answers how many were added, and which unless it was all.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
kind AS (
    SELECT * FROM ROWS FROM (
        json_to_recordset(%(kinds)s::json) AS (
            queue text, task text, priority smallint, max_attempts integer, max_crashes integer,
            backoff json, lapse_backoff json, timeout double precision, webhook text, on_failure json,
            expires double precision, expires_at timestamptz
        )
    ) WITH ORDINALITY AS kind (
        queue, task, priority, max_attempts, max_crashes, backoff, lapse_backoff, timeout, webhook, on_failure, expires,
        expires_at, number
    )
),
new AS (
    SELECT *, coalesce(run_at::timestamptz, clock.now) + make_interval(secs => coalesce(delay::double precision, 0)) AS due
    FROM clock, ROWS FROM (
        json_array_elements_text(%(kind)s::json), json_array_elements_text(%(id)s::json),
        json_array_elements(%(payload)s::json), json_array_elements_text(%(key)s::json),
        json_array_elements_text(%(digest)s::json), json_array_elements_text(%(delay)s::json),
        json_array_elements_text(%(run_at)s::json), json_array_elements_text(%(lane)s::json),
        json_array_elements_text(%(parent)s::json), json_array_elements_text(%(trace)s::json)
    ) WITH ORDINALITY AS new (kind, id, payload, key, digest, delay, run_at, lane, parent, trace, place)
),
added AS (
    INSERT INTO {schema}.jobs (
        queue, id, task, payload, key, digest, priority, created_at, next_earliest_run_at, rank,
        max_attempts, max_crashes, backoff, lapse_backoff, timeout, lane, parent, trace, webhook,
        expires_at, on_failure
    )
    SELECT
        kind.queue, new.id, kind.task, new.payload, new.key, new.digest, kind.priority, clock.now, new.due,
        CASE WHEN new.due <= clock.now THEN new.due - make_interval(mins => kind.priority) END,
        kind.max_attempts, kind.max_crashes, kind.backoff, kind.lapse_backoff, kind.timeout,
        new.lane, new.parent, new.trace, kind.webhook,
        coalesce(kind.expires_at, clock.now + make_interval(secs => kind.expires)), kind.on_failure
    FROM clock, new JOIN kind ON kind.number = new.kind::integer
    ORDER BY new.place
    ON CONFLICT (id, queue) DO NOTHING
    RETURNING queue, id, next_earliest_run_at
),
logged AS (
    INSERT INTO {schema}.job_events (type, queue, job_id, data)
    SELECT 'enqueued', queue, id, '{"type": "enqueued", "table": "jobs", "details": {}}' FROM added WHERE %(all_events)s
),
rung AS (
    SELECT pg_notify(%(channel)s, notified.queue) FROM json_array_elements_text(%(notify)s::json) AS notified (queue)
    WHERE notified.queue IN (SELECT queue FROM added, clock WHERE next_earliest_run_at < clock.now + interval '1 second')
)
SELECT
    count(*), (SELECT count(*) FROM rung),
    CASE WHEN count(*) < %(total)s THEN json_agg(json_build_array(queue, id))::text END
FROM added
