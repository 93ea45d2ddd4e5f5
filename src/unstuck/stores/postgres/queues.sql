-- queues: those that are paused, and why.
SELECT name, paused_why FROM {schema}.queues WHERE paused_at IS NOT NULL
