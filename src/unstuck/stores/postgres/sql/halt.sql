-- halt: stop leasing from a queue after a CRITICAL error. A pause keeps its time and its reason.
WITH halted AS (
    INSERT INTO {schema}.queues (name, paused_at, paused_why, halted_at, halted_why)
    SELECT %(queue)s, now, %(why)s, now, %(why)s FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
    ON CONFLICT (name) DO UPDATE SET
        paused_at = coalesce(queues.paused_at, excluded.paused_at),
        paused_why = coalesce(nullif(queues.paused_why, queues.halted_why), excluded.paused_why),
        halted_at = greatest(queues.paused_at, excluded.halted_at),
        halted_why = excluded.halted_why
)
INSERT INTO {schema}.job_events (type, queue, data) VALUES ('paused', %(queue)s, json_build_object(
    'type', 'paused', 'table', 'jobs', 'details', json_build_object('why', %(why)s::text)
))
