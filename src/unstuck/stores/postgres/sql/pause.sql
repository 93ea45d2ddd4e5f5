-- pause: stop leasing from a queue. A second pause keeps the first one's time and takes the new reason.
WITH paused AS (
    INSERT INTO {schema}.queues (name, paused_at, paused_why) VALUES (%(queue)s, clock_timestamp(), %(why)s)
    ON CONFLICT (name) DO UPDATE
    SET paused_at = coalesce(queues.paused_at, excluded.paused_at), paused_why = excluded.paused_why
)
INSERT INTO {schema}.job_events (type, queue, data) VALUES ('paused', %(queue)s, json_build_object(
    'type', 'paused', 'table', 'jobs', 'details', json_build_object('why', %(why)s::text)
))
