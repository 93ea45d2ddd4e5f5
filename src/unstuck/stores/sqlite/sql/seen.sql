-- seen: record that a worker lives.
INSERT INTO worker (id, started_at, seen_at, facts) VALUES (:id, :now, :now, :facts)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, facts = excluded.facts
