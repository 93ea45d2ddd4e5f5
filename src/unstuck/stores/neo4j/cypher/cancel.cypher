// cancel: fail jobs that are not finished. A running one's lease is taken over and ended in this one step.
CALL () {
  UNWIND $addresses AS address
  MATCH (c:{label} {id: address})
  SET c.id = c.id
  WITH collect(c) AS locked
  WITH locked, datetime.realtime().epochMillis AS now
  UNWIND locked AS j
  WITH j, now
  WHERE j.status IN ['pending', 'processing']
  WITH j, now, CASE WHEN coalesce(j.fence, 0) + 1 > now THEN j.fence + 1 ELSE now END AS fence
  SET j += {
    status: 'failed', fence: fence, settled_fence: fence, settled: 'cancelled', rank: null, due_at: null, processed_at: now,
    failure: $failure, error: $error, error_category: $error_category, error_code: $error_code, error_at: now,
    lock_owner: null, lock_until: null, heartbeat_at: null
  }
  RETURN collect({type: 'cancelled', queue: coalesce(j.queue, $queue), address: j.id, details: '{}'}) AS logged
}
CALL (logged) {
  UNWIND logged AS one
  WITH one.queue AS queue, count(*) AS value
  CREATE (:{label}Counter {queue: queue, name: 'cancelled', value: value})
  RETURN count(*) AS counted
}
{logged}
RETURN size(logged) AS answer
