-- quarantine: fail a job whose record cannot be read, so that it holds up nobody. What may be wrong is reset;
-- a payload that is no JSON is kept as text, one that is no text at all as hexadecimal digits.
UPDATE job SET
    status = 'failed', rank = NULL, owner = NULL, lease_until = NULL, heartbeat_at = NULL, finished_at = :now,
    started_at = :now, settled_fence = fence, settled = 'failed', error = :error,
    payload = CASE WHEN :garbled THEN json_quote(hex(payload)) WHEN json_valid(payload) THEN payload
        ELSE json_quote(payload) END,
    task = iif(:garbled, 'unreadable', task), stage = NULL, progress = NULL, result = NULL, parent = NULL,
    trace = NULL, webhook = NULL, expires_at = NULL, on_failure = NULL, backoff = '[]', lapse_backoff = '[]', run_at = :now,
    created_at = iif(created_at BETWEEN 0 AND :now, created_at, :now)
WHERE seq = :seq
