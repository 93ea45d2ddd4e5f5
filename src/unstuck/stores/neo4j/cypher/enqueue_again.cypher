// enqueue_again: start finished jobs over with new content, numbered as new ones are. The fence goes on, so old leases
// stay refused.
UNWIND $again AS row
MATCH (c:{label} {id: row.address})
SET c.id = c.id
WITH collect({c: c, row: row}) AS locked
WITH locked, datetime.realtime() AS clock
WITH locked, clock.epochMillis AS now, (clock.epochSeconds * 1000000 + clock.microsecond) * 1024 + $chance AS first
UNWIND locked AS one
WITH one.c AS j, one.row AS row, now, first, coalesce(one.row.run_at, now) + one.row.delay AS run_at
WHERE j.status IN ['completed', 'failed']
WITH j, row, now, first, run_at, coalesce(j.fence, 0) AS fence
SET j += {
  key: null, digest: null, max_crashes: null, lane: null, parent: null, trace: null, started_at: null,
  processed_at: null, stage: null, progress: null, result: null, failure: null, error: null, error_category: null,
  error_code: null, error_at: null, policy: null
}, j += row.facts, j += {
  fence: fence, created_at: now, run_at: run_at, seq: first + row.number, born: $call,
  rank: CASE WHEN run_at <= now THEN run_at - 60000 * row.facts.priority END,
  due_at: CASE WHEN run_at > now THEN run_at END, expires_at: coalesce(row.expires_at, now + row.expires)
}
RETURN collect(row.number) AS answer
