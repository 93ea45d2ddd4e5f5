// promote: give delayed jobs of `share.queue` that have become due their position in line, a bounded number at a time.
CALL (share) {
  MATCH (d:{label})
  USING INDEX SEEK d:{label}(queue, due_at)
  WHERE d.queue = share.queue AND d.due_at <= timestamp()
  WITH d ORDER BY d.queue, d.due_at LIMIT $promote
  WITH d ORDER BY d.id
  SET d.id = d.id
  WITH collect(d) AS late
  UNWIND late AS j
  WITH j WHERE j.status = 'pending' AND j.due_at IS NOT NULL
  SET j += {rank: j.due_at - 60000 * {priority}, due_at: null}
  RETURN count(*) AS promoted
}
