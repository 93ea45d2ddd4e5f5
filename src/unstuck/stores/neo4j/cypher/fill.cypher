// fill: give jobs that others made, or put back, what this store needs to know of them. A bounded number at a time, behind
// an id: one that is not a text is behind none, and its node is not a job. What should be a number and is not counts as not given;
// so does a time that is not in milliseconds. The last sign of a holder is not known, but when it leased, or for how long.
MATCH (c:{label})
USING INDEX SEEK c:{label}(status)
WHERE c.status = $status AND c.id > $behind AND (
  c.fence IS NULL OR c.seq IS NULL OR (c.status = 'pending' AND c.rank IS NULL AND c.due_at IS NULL)
)
WITH c ORDER BY c.id LIMIT $limit
SET c.id = c.id
WITH collect(c) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND range(0, size(locked) - 1) AS n
WITH locked[n] AS j, n, now
WITH j, n, now, j.status = 'pending' AS waits, j.status = 'processing' AS runs, {priority} AS priority,
  CASE WHEN 0 <= j.created_at < 9000000000000 THEN toInteger(j.created_at) ELSE now END AS made,
  CASE WHEN 0 <= j.run_at < 9000000000000 THEN toInteger(j.run_at) END AS given
WITH j, n, now, waits, runs, priority, made, coalesce(given, made) AS run_at
SET j += {
  queue: coalesce(j.queue, $queue), task: coalesce(j.task, $task), run_at: run_at, priority: priority,
  created_at: coalesce(j.created_at, run_at), attempts: coalesce(j.attempts, 0),
  max_attempts: coalesce(j.max_attempts, 3), crashes: coalesce(j.crashes, 0), fence: coalesce(j.fence, 0),
  seq: coalesce(j.seq, made * 1024000 + $first + n),
  rank: CASE WHEN waits AND run_at <= now THEN run_at - 60000 * priority END,
  due_at: CASE WHEN waits AND run_at > now THEN run_at END,
  lock_owner: CASE WHEN runs THEN coalesce(j.lock_owner, 'unknown') END,
  lock_until: CASE WHEN runs AND j.lock_until >= 0 THEN j.lock_until END,
  heartbeat_at: CASE
    WHEN NOT runs THEN null
    WHEN coalesce(j.heartbeat_at, j.started_at) >= 0 THEN coalesce(j.heartbeat_at, j.started_at)
    WHEN j.lock_until > now + $lease THEN now
    WHEN j.lock_until >= 0 THEN j.lock_until - $lease END,
  processed_at: CASE WHEN j.status IN ['completed', 'failed'] THEN coalesce(j.processed_at, now) END
}
RETURN [count(*), max(j.id)] AS answer
