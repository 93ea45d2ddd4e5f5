-- enqueue: add a job unless its address is taken. The rank is set only if the job is due.
INSERT INTO job (
    queue, id, task, payload, key, digest, priority, created_at, run_at, rank,
    max_attempts, max_crashes, backoff, lapse_backoff, timeout, lane, parent, trace, webhook,
    expires_at, on_failure
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id, queue) DO NOTHING
