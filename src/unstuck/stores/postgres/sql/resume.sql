-- resume: lift a pause, a halt or both.
WITH lifted AS (
    UPDATE {schema}.queues SET paused_at = NULL, paused_why = NULL, halted_at = NULL, halted_why = NULL
    WHERE name = %(queue)s AND paused_at IS NOT NULL
    RETURNING name
),
logged AS (
    INSERT INTO {schema}.job_events (type, queue, data) 
    SELECT 'resumed', name, '{"type": "resumed", "table": "jobs", "details": {}}' FROM lifted
)
SELECT name, pg_notify(%(channel)s, name) FROM lifted
