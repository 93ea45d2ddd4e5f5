-- queues: what is known about queues besides their jobs.
SELECT name, paused_why FROM queue WHERE paused_at IS NOT NULL
