// settle: end leases. Each applies only for the fence that holds the job; time plays no part. Events and counters are
// written with it. A job that goes back without a delay keeps its run_at, and with it its old position in line.
UNWIND $outcomes AS row
MATCH (c:{label} {id: row.address})
SET c.id = c.id
WITH collect({c: c, row: row}) AS locked
WITH locked, datetime.realtime().epochMillis AS now
UNWIND locked AS one
WITH one.c AS j, one.row AS row, now
WHERE j.status = 'processing' AND j.fence = row.fence
SET j += {
  status: row.status,
  attempts: CASE WHEN j.attempts > 0 THEN j.attempts - row.refund ELSE 0 END,
  crashes: coalesce(j.crashes, 0) + CASE WHEN j.attempts > 0 THEN row.crashed ELSE 0 END,
  run_at: CASE WHEN row.delay > 0 THEN now + row.delay ELSE j.run_at END,
  rank: CASE WHEN row.status = 'pending' AND row.delay = 0 THEN j.run_at - 60000 * {priority} END,
  due_at: CASE WHEN row.status = 'pending' AND row.delay > 0 THEN now + row.delay END,
  processed_at: CASE WHEN row.status <> 'pending' THEN now END,
  result: row.result,
  failure: coalesce(row.failure, j.failure),
  error: CASE WHEN row.failure IS NULL THEN j.error ELSE row.error END,
  error_category: CASE WHEN row.failure IS NULL THEN j.error_category ELSE row.error_category END,
  error_code: CASE WHEN row.failure IS NULL THEN j.error_code ELSE row.error_code END,
  error_at: CASE WHEN row.failure IS NULL THEN j.error_at ELSE now END,
  settled_fence: j.fence, settled: row.word, lock_owner: null, lock_until: null, heartbeat_at: null
}
WITH collect({number: row.number, queue: j.queue, address: j.id, counts: row.counts}) AS applied
CALL (applied) {
  UNWIND applied AS one
  UNWIND one.counts AS name
  WITH one.queue AS queue, name, count(*) AS value
  CREATE (:{label}Counter {queue: queue, name: name, value: value})
  RETURN count(*) AS counted
}
WITH [one IN applied | one.number] AS numbers, applied
WITH numbers, [event IN $events WHERE event.number IN numbers | {
  type: event.type, details: event.details,
  queue: [one IN applied WHERE one.number = event.number | one.queue][0],
  address: [one IN applied WHERE one.number = event.number | one.address][0]
}] AS logged
{logged}
RETURN numbers AS answer
