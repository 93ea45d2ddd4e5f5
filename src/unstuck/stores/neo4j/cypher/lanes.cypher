// lanes: the heads of the lanes of some queues, each as rank, number, address and, if that matters, how it was
// settled last. Reads all that wait in these queues.
UNWIND $lanes AS share
CALL (share) {
  MATCH (c:{label})
  USING INDEX SEEK c:{label}(queue, rank, seq)
  WHERE c.queue = share.queue AND c.rank IS NOT NULL AND c.seq IS NOT NULL AND c.status = 'pending'
    AND {in_time}
  WITH c, share ORDER BY c.queue, c.rank, c.seq
  WITH c.lane AS lane, collect([c.rank, c.seq, c.id, CASE WHEN share.only_new THEN c.settled END]) AS found
  RETURN collect([lane, found]) AS heads
}
RETURN collect([share.queue, [head IN heads | [head[0], head[1][..share.most]]]]) AS answer
