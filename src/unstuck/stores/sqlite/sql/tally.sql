-- tally: add to a counter.
INSERT INTO counter (queue, name, value) VALUES (?, ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET value = value + excluded.value
