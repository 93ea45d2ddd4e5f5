// workers: every worker seen lately, the youngest sign of life first.
MATCH (w:{label}Worker)
WITH w ORDER BY w.seen_at DESC, w.id
RETURN collect([w.started_at, w.seen_at, w.facts]) AS answer
