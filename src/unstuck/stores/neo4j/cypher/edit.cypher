// edit: give jobs that wait another priority or another time. What is null stays as it is.
CALL () {
  UNWIND $addresses AS address
  MATCH (c:{label} {id: address})
  SET c.id = c.id
  WITH collect(c) AS locked
  WITH locked, datetime.realtime().epochMillis AS now
  UNWIND locked AS j
  WITH j, now, coalesce($run_at, j.run_at, j.created_at, now) AS run_at,
    coalesce($priority, {priority}) AS priority
  WHERE j.status = 'pending'
  SET j += {
    priority: priority, run_at: run_at,
    rank: CASE WHEN run_at <= now THEN run_at - 60000 * priority END,
    due_at: CASE WHEN run_at > now THEN run_at END
  }
  RETURN collect({type: 'edited', queue: coalesce(j.queue, $queue), address: j.id, details: $details}) AS logged
}
{logged}
RETURN size(logged) AS answer
