-- enqueue_instead: give the job that stands for a key what a debounced one has. It keeps its id and when it was created.
WITH new AS (
    SELECT * FROM json_to_recordset(%(jobs)s::json) AS new (
        task text, payload json, digest text, priority smallint, debounce double precision, max_attempts integer,
        max_crashes integer, backoff json, lapse_backoff json, timeout double precision, lane text, parent text, trace text,
        webhook text, on_failure json, expires double precision, expires_at timestamptz
    )
)
UPDATE {schema}.jobs SET
    task = new.task, payload = coalesce(new.payload, 'null'), digest = new.digest, priority = new.priority,
    next_earliest_run_at = clock_timestamp() + make_interval(secs => new.debounce), rank = NULL,
    max_attempts = new.max_attempts, max_crashes = new.max_crashes, backoff = new.backoff,
    lapse_backoff = new.lapse_backoff, timeout = new.timeout, lane = new.lane, parent = new.parent, trace = new.trace,
    webhook = new.webhook, on_failure = new.on_failure,
    expires_at = coalesce(new.expires_at, clock_timestamp() + make_interval(secs => new.expires))
FROM new WHERE jobs.id = %(id)s AND jobs.queue = %(queue)s
RETURNING jobs.id
