-- quarantine: fail a leased job whose record cannot be read, so that it holds up nobody. What may be wrong is reset;
-- the payload is kept as text.
WITH aside AS (
    UPDATE {schema}.jobs SET
        status = 'failed', rank = NULL, locked_by = NULL, lease_expires_at = NULL, last_heartbeat_at = NULL,
        finished_at = clock_timestamp(), started_at = clock_timestamp(), settled_fence = fence, settled = 'failed',
        error = %(error)s::json, fail_code = 'unreadable', fail_reason = %(why)s, payload = to_json(payload::text),
        stage = NULL, progress = NULL, result = NULL, parent = NULL, trace = NULL, webhook = NULL, expires_at = NULL, on_failure = NULL, backoff = '[]',
        lapse_backoff = '[]', timeout = NULL, next_earliest_run_at = clock_timestamp(),
        created_at = CASE WHEN isfinite(created_at) THEN least(created_at, clock_timestamp()) ELSE clock_timestamp() END
    WHERE queue = %(queue)s AND id = %(id)s AND fence = %(fence)s AND status = 'processing'
    RETURNING queue, id
)
INSERT INTO {schema}.job_events (type, queue, job_id, data)
SELECT 'quarantined', queue, id, json_build_object(
    'type', 'quarantined', 'table', 'jobs', 'details', json_build_object('why', %(why)s::text)
)
FROM aside
