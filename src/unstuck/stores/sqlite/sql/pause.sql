-- pause: stop leasing from a queue. A second pause keeps the first one's time and takes the new reason.
INSERT INTO queue (name, paused_at, paused_why) VALUES (:queue, :now, :why)
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(paused_at, excluded.paused_at), paused_why = excluded.paused_why
