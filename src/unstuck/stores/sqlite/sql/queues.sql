-- queues: those that are paused or halted, and why.
SELECT name, paused_why, iif(halted_at >= paused_at, halted_why, NULL) FROM queue WHERE paused_at IS NOT NULL
