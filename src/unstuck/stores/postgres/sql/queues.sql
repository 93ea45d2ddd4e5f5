-- queues: those that are paused or halted, and why.
SELECT name, paused_why, CASE WHEN halted_at >= paused_at THEN halted_why END FROM {schema}.queues WHERE paused_at IS NOT NULL
