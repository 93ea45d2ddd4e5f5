-- adopt: give a lease to jobs that are processed without one and whose holder was silent for the grace,
-- and to those whose last beat lies in the future, because the clock has been put back since.
UPDATE job SET lease_until = :now + coalesce(lease_until - heartbeat_at, :grace), heartbeat_at = :now
WHERE seq IN (
    SELECT seq FROM job
    WHERE status = 'processing'
        AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
        AND (
            (lease_until IS NULL AND coalesce(heartbeat_at, started_at, run_at) < :now - :grace)
            OR heartbeat_at > :now + 60000
        )
    LIMIT :limit
)
RETURNING queue, id, owner
