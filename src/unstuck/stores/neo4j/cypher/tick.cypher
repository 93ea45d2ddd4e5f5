// tick: note that a schedule fires for a slot, unless it did so for this or a later one.
MERGE (s:{label}Schedule {name: $schedule})
SET s.name = s.name
WITH s WHERE s.slot IS NULL OR s.slot < $slot OR s.slot = $instead_of
SET s.slot = $slot
RETURN count(s) AS answer
