// next_delayed: as next_in_line, the next queue that has delayed jobs; it is found if one of them is due, or any time will do.
CALL (at) {
  OPTIONAL MATCH (d:{label})
  USING INDEX SEEK d:{label}(queue, due_at)
  WHERE d.queue > at AND d.due_at IS NOT NULL
  WITH d ORDER BY d.queue, d.due_at LIMIT 1
  RETURN d.queue AS next, $any_time OR d.due_at <= timestamp() AS due
}
WITH next AS at, found + CASE WHEN next IS NOT NULL AND due THEN [next] ELSE [] END AS found
