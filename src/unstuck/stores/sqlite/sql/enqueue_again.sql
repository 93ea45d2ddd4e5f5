-- enqueue_again: start a finished job over with new content, as the newest of all. The fence goes on, so old leases stay
-- refused.
UPDATE job SET
    seq = (SELECT max(seq) + 1 FROM job), status = 'pending', task = :task, payload = :payload, digest = :digest, priority = :priority,
    created_at = :now, run_at = :run_at, rank = :rank, started_at = NULL, finished_at = NULL,
    attempts = 0, max_attempts = :max_attempts, crashes = 0, max_crashes = :max_crashes,
    stage = NULL, progress = NULL, result = NULL, error = NULL,
    backoff = :backoff, lapse_backoff = :lapse_backoff, timeout = :timeout, lane = :lane,
    parent = :parent, trace = :trace, webhook = :webhook, expires_at = :expires_at, on_failure = :on_failure
WHERE id = :id AND queue = :queue AND status IN ('completed', 'failed')
