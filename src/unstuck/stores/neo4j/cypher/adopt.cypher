// adopt: give a lease to jobs that are processed without one and whose holder was silent for the grace, and to those
// whose last beat lies in the future, because the clock has been put back since.
CALL () {
  MATCH (c:{label})
  USING INDEX SEEK c:{label}(status)
  WHERE c.status = 'processing' AND ($queues IS NULL OR c.queue IN $queues)
    AND ((c.lock_until IS NULL AND coalesce(c.heartbeat_at, c.started_at, c.run_at, c.created_at, 0) < timestamp() - $grace)
      OR c.heartbeat_at > timestamp() + 60000)
  WITH c ORDER BY c.id LIMIT $limit
  SET c.id = c.id
  WITH collect(c) AS locked
  WITH locked, datetime.realtime().epochMillis AS now
  UNWIND locked AS j
  WITH j, now
  WHERE j.status = 'processing' AND j.id > '' AND (j.lock_until IS NULL OR j.heartbeat_at > now + 60000)
  SET j += {lock_until: now + coalesce(j.lock_until - j.heartbeat_at, $grace), heartbeat_at: now}
  RETURN collect({type: 'reaper:adopted', queue: j.queue, address: j.id, details: '{}', owner: j.lock_owner}) AS logged
}
{logged}
RETURN size(logged) AS answer
