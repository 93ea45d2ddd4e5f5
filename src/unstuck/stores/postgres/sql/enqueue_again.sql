-- enqueue_again: start finished jobs over with new content, as the newest of all. The fence goes on, so old leases stay
-- refused.
WITH new AS (
    SELECT *, clock_timestamp() AS now,
        coalesce(run_at, clock_timestamp()) + make_interval(secs => coalesce(delay, 0)) AS due
    FROM json_to_recordset(%(jobs)s::json) AS new (
        queue text, id text, task text, payload json, digest text, priority smallint, run_at timestamptz,
        delay double precision, max_attempts integer, max_crashes integer, backoff json,
        lapse_backoff json, timeout double precision, lane text, parent text, trace text, webhook text,
        on_failure json, expires double precision, expires_at timestamptz
    )
),
over AS MATERIALIZED (
    SELECT new.* FROM (SELECT * FROM new ORDER BY id, queue) AS new CROSS JOIN LATERAL (
        SELECT FROM {schema}.jobs
        WHERE jobs.id = new.id AND jobs.queue = new.queue AND jobs.status || '' IN ('completed', 'failed')
        FOR UPDATE
    ) AS line
),
added AS (
    UPDATE {schema}.jobs SET
        seq = DEFAULT, status = 'pending', task = over.task, payload = coalesce(over.payload, 'null'), digest = over.digest, priority = over.priority,
        created_at = over.now, next_earliest_run_at = over.due,
        rank = CASE WHEN over.due <= over.now THEN over.due - make_interval(mins => over.priority) END,
        started_at = NULL, finished_at = NULL, attempt_count = 0, max_attempts = over.max_attempts, crashes = 0,
        max_crashes = over.max_crashes, stage = NULL, progress = NULL, result = NULL, error = NULL, fail_code = NULL,
        fail_reason = NULL, backoff = over.backoff, lapse_backoff = over.lapse_backoff, timeout = over.timeout,
        lane = over.lane, parent = over.parent, trace = over.trace, webhook = over.webhook,
        expires_at = coalesce(over.expires_at, over.now + make_interval(secs => over.expires)), on_failure = over.on_failure
    FROM over WHERE jobs.id = over.id AND jobs.queue = over.queue
    RETURNING jobs.queue, jobs.id
),
logged AS (
    INSERT INTO {schema}.job_events (type, queue, job_id, data)
    SELECT 'enqueued', queue, id, '{"type": "enqueued", "table": "jobs", "details": {}}' FROM added WHERE %(all_events)s
)
SELECT queue, id FROM added
