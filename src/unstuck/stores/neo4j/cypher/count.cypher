// count: every queue in numbers. Reads all jobs once, so that each is counted once, and of each only what its state can
// have: to look for what is not there takes as long as to find it. `steady` is false if counters were folded meanwhile:
// some of them may have been read twice, or not at all.
OPTIONAL MATCH (before:{label}Store {name: 'store'})
WITH coalesce(before.folds, 0) AS folds, datetime.realtime().epochMillis AS now
CALL (now) {
  MATCH (j:{label})
  WITH j, j.queue AS queue, j.status AS status, now
  WITH queue, status, count(*) AS number,
    sum(CASE WHEN status = 'pending' AND j.due_at > now THEN 1 ELSE 0 END) AS delayed,
    sum(CASE WHEN status = 'processing' AND j.lock_until < now THEN 1 ELSE 0 END) AS expired,
    sum(CASE WHEN status = 'failed' AND j.settled = 'cancelled' THEN 1 ELSE 0 END) AS cancelled
  RETURN collect([queue, CASE status
    WHEN 'pending' THEN {pending: number, delayed: delayed}
    WHEN 'processing' THEN {processing: number, expired: expired}
    WHEN 'completed' THEN {completed: number}
    WHEN 'failed' THEN {failed: number, cancelled: cancelled} ELSE {} END]) AS kinds
}
WITH folds, now, kinds
CALL (now, kinds) {
  UNWIND kinds AS kind
  WITH DISTINCT kind[0] AS name, now
  CALL (name) {
    MATCH (c:{label})
    USING INDEX SEEK c:{label}(queue, rank, seq)
    WHERE c.queue = name AND c.rank IS NOT NULL AND c.seq IS NOT NULL AND c.status = 'pending'
    WITH c ORDER BY c.queue, c.rank, c.seq LIMIT 1
    RETURN c.run_at AS run_at
  }
  RETURN collect([name, now - run_at]) AS waited
}
CALL () {
  MATCH (c:{label}Counter)
  WITH c.queue AS queue, c.name AS name, sum(c.value) AS value
  RETURN collect([queue, name, value]) AS totals
}
CALL () {
  MATCH (q:{label}Queue) WHERE q.paused_at IS NOT NULL
  RETURN collect([q.name, q.paused_why, CASE WHEN q.halted_at >= q.paused_at THEN q.halted_why END]) AS stopped
}
OPTIONAL MATCH (after:{label}Store {name: 'store'})
WITH kinds, waited, totals, stopped, coalesce(after.folds, 0) = folds AS steady
RETURN {kinds: kinds, waited: waited, totals: totals, stopped: stopped, steady: steady} AS answer
