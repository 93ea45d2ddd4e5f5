// line: the heads of some queues' lines, each job as rank, number, address and, if that matters, how it was settled last.
UNWIND $lines AS share
CALL (share) {
  MATCH (c:{label})
  USING INDEX SEEK c:{label}(queue, rank, seq)
  WHERE c.queue = share.queue AND c.rank IS NOT NULL AND c.seq IS NOT NULL AND c.status = 'pending'
    AND {in_time}
  WITH c, share ORDER BY c.queue, c.rank, c.seq LIMIT $reach
  RETURN collect([c.rank, c.seq, c.id, CASE WHEN share.only_new THEN c.settled END]) AS line
}
RETURN collect([share.queue, line]) AS answer
