-- tick: note that a schedule fires for a slot, unless it did so for this or a later one.
INSERT INTO {schema}.schedules (name, slot) VALUES (%(schedule)s, %(slot)s)
ON CONFLICT (name) DO UPDATE SET slot = excluded.slot WHERE excluded.slot > schedules.slot OR schedules.slot = %(instead_of)s
RETURNING name
