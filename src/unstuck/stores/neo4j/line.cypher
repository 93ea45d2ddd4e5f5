// line: the heads of some queues' lines, each job as rank, number and address.
UNWIND $lines AS share
CALL (share) {
  MATCH (c:{label})
  USING INDEX SEEK c:{label}(queue, rank, seq)
  WHERE c.queue = share.queue AND c.rank IS NOT NULL AND c.seq IS NOT NULL AND c.status = 'pending'
  WITH c ORDER BY c.queue, c.rank, c.seq LIMIT $limit
  RETURN collect([c.rank, c.seq, c.id]) AS line
}
RETURN collect([share.queue, line]) AS answer
