// fill: give jobs that others made, or put back, what this store needs to know of them. A bounded number at a time. When
// a holder was last heard is not known, but when he leased, or for how long.
MATCH (c:{label})
USING INDEX SEEK c:{label}(status)
WHERE c.status = $status AND (
  c.fence IS NULL OR c.seq IS NULL OR (c.status = 'pending' AND c.rank IS NULL AND c.due_at IS NULL)
)
WITH c ORDER BY c.id LIMIT $limit
SET c.id = c.id
WITH collect(c) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS j
WITH j, now, coalesce(j.run_at, j.created_at, now) AS run_at,
  CASE WHEN j.priority IS NULL OR j.priority < 0 THEN 0 WHEN j.priority > 9 THEN 9 ELSE toInteger(j.priority) END AS priority
WHERE j.status = $status
WITH j, now, run_at, priority, j.status = 'pending' AS waits
SET j += {
  queue: coalesce(j.queue, $queue), task: coalesce(j.task, $task), run_at: run_at, priority: priority,
  created_at: coalesce(j.created_at, run_at), attempts: coalesce(j.attempts, 0),
  max_attempts: coalesce(j.max_attempts, 3), crashes: coalesce(j.crashes, 0), fence: coalesce(j.fence, 0),
  seq: coalesce(j.seq, toInteger(coalesce(j.created_at, now)) * 4096000),
  rank: CASE WHEN waits AND run_at <= now THEN run_at - 60000 * priority END,
  due_at: CASE WHEN waits AND run_at > now THEN run_at END,
  lock_owner: CASE WHEN j.status = 'processing' THEN coalesce(j.lock_owner, 'unknown') END,
  lock_until: CASE WHEN j.status = 'processing' THEN j.lock_until END,
  heartbeat_at: CASE
    WHEN j.status <> 'processing' THEN null
    WHEN coalesce(j.heartbeat_at, j.started_at) IS NOT NULL THEN coalesce(j.heartbeat_at, j.started_at)
    WHEN j.lock_until - $lease > now THEN now
    ELSE j.lock_until - $lease END,
  processed_at: CASE WHEN j.status IN ['completed', 'failed'] THEN coalesce(j.processed_at, now) END
}
RETURN count(*) AS answer
