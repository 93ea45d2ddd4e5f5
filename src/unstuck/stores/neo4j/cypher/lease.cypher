// lease: take jobs from the heads of the queues' lines. The lock on the queue's node makes a pause a barrier, and lets
// each leaser see what those before it have left. All columns of the index stand in ORDER BY, or all jobs would be read.
// Where only new ones are wanted, more are looked at than taken.
UNWIND $shares AS share
MATCH (q:{label}Queue {name: share.queue})
SET q.name = q.name
WITH collect({share: share, q: q}) AS queues
UNWIND queues AS one
WITH one.share AS share, one.q AS q
WHERE q.paused_at IS NULL
{promote}
WITH share
CALL (share) {
  MATCH (c:{label})
  USING INDEX SEEK c:{label}(queue, rank, seq)
  WHERE c.queue = share.queue AND c.rank IS NOT NULL AND c.seq IS NOT NULL AND c.status = 'pending'
    AND {in_time}
  WITH c, share ORDER BY c.queue, c.rank, c.seq LIMIT $reach
  WITH c, share WHERE NOT share.only_new OR c.settled IS NULL
  WITH c ORDER BY c.queue, c.rank, c.seq LIMIT $limit
  RETURN collect(c) AS line
}
WITH share, line[..share.most] AS line
UNWIND range(0, size(line) - 1) AS n
WITH line[n] AS c, share.lease AS lease, share.turn + n * share.step AS stands
ORDER BY stands, c.rank, c.seq LIMIT $limit
WITH collect({c: c, lease: lease, stands: stands}) AS found
{fit}
{take}
RETURN collect([stood, {job}]) AS answer
