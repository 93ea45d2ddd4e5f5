// next_in_line: add to `found` the first queue behind the name `at` that has jobs in line; then it is `at`, or null at the end.
CALL (at) {
  OPTIONAL MATCH (c:{label})
  USING INDEX SEEK c:{label}(queue, rank, seq)
  WHERE c.queue > at AND c.rank IS NOT NULL AND c.seq IS NOT NULL
  WITH c ORDER BY c.queue, c.rank, c.seq LIMIT 1
  RETURN c.queue AS next
}
WITH next AS at, found + CASE WHEN next IS NULL THEN [] ELSE [next] END AS found
