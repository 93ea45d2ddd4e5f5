-- quarantine: fail a job whose record cannot be read, so that it holds up nobody. Its payload is kept as text.
UPDATE job SET
    status = 'failed', rank = NULL, owner = NULL, lease_until = NULL, heartbeat_at = NULL, finished_at = :now,
    started_at = :now, settled_fence = fence, settled = 'failed', error = :error,
    payload = iif(json_valid(payload), payload, json_quote(payload)), progress = NULL, result = NULL,
    backoff = '[]', lapse_backoff = '[]', run_at = :now, created_at = iif(created_at BETWEEN 0 AND :now, created_at, :now)
WHERE seq = :seq
RETURNING queue, id
