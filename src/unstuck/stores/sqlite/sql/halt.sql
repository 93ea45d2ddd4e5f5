-- halt: stop leasing from a queue after a CRITICAL error. A pause keeps its time and its reason.
INSERT INTO queue (name, paused_at, paused_why, halted_at, halted_why) VALUES (:queue, :now, :why, :now, :why)
ON CONFLICT (name) DO UPDATE SET
    paused_at = coalesce(paused_at, excluded.paused_at),
    paused_why = coalesce(nullif(paused_why, halted_why), excluded.paused_why),
    halted_at = max(coalesce(paused_at, 0), excluded.halted_at),
    halted_why = excluded.halted_why
