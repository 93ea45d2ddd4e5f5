// fleet: every worker seen lately, the youngest sign of life first, and each schedule that ever fired, with its last slot.
CALL () {
  MATCH (w:{label}Worker)
  WITH w ORDER BY w.seen_at DESC, w.id
  RETURN collect([w.started_at, w.seen_at, w.facts]) AS workers
}
CALL () {
  MATCH (s:{label}Schedule)
  WITH s ORDER BY s.name
  RETURN collect([s.name, s.slot]) AS slots
}
RETURN {workers: workers, slots: slots} AS answer
