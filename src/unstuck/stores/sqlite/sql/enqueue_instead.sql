-- enqueue_instead: give the job that stands for a key what a debounced one has. It keeps its id and when it was created.
UPDATE job SET
    task = :task, payload = :payload, digest = :digest, priority = :priority, run_at = :run_at, rank = :rank,
    max_attempts = :max_attempts, max_crashes = :max_crashes, backoff = :backoff, lapse_backoff = :lapse_backoff,
    timeout = :timeout, lane = :lane, parent = :parent, trace = :trace, webhook = :webhook,
    expires_at = :expires_at, on_failure = :on_failure
WHERE id = :id AND queue = :queue
