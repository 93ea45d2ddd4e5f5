-- tick: note that a schedule fires for a slot, unless it did so for this or a later one.
INSERT INTO schedule (name, slot) VALUES (:schedule, :slot)
ON CONFLICT (name) DO UPDATE SET slot = excluded.slot WHERE excluded.slot > slot OR slot = :instead_of
