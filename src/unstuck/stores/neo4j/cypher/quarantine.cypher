// quarantine: fail a leased job whose record cannot be read, so that it holds up nobody. What may be wrong is reset;
// a payload that is no JSON is kept as text.
CALL () {
  MATCH (c:{label} {id: $address})
  SET c.id = c.id
  WITH c AS j, datetime.realtime().epochMillis AS now
  WHERE j.status = 'processing'
  SET j += {
    status: 'failed', rank: null, due_at: null, lock_owner: null, lock_until: null, heartbeat_at: null, processed_at: now,
    started_at: now, fence: now, settled_fence: now, settled: 'failed', failure: $failure, error: $error,
    error_category: $error_category, error_code: $error_code, error_at: now, payload: $payload, task: $task,
    stage: null, progress: null, result: null, key: null, digest: null, lane: null, parent: null, trace: null,
    policy: null, expires_at: null, priority: 0, crashes: 0, attempts: 1, max_attempts: 1, max_crashes: null, run_at: now, created_at: now
  }
  RETURN collect({type: 'quarantined', queue: j.queue, address: j.id, details: $details}) AS logged
}
{logged}
RETURN size(logged) AS answer
