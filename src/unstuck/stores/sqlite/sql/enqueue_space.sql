-- enqueue_space: let a job stand for a key from now on.
INSERT INTO spacing (queue, key, job, until) VALUES (:queue, :key, :job, :until)
ON CONFLICT (queue, key) DO UPDATE SET job = excluded.job, until = excluded.until
