// requeue: make finished jobs pending again with fresh budgets. The fence goes on, so old leases stay refused.
// Who asks for that wants them to run, however late.
CALL () {
  {finished}
  WITH collect(j) AS chosen, now
  UNWIND range(0, size(chosen) - 1) AS n
  WITH chosen[n] AS j, n, now
  SET j += {
    status: 'pending', run_at: now, priority: {priority}, rank: now - 60000 * {priority}, processed_at: null, started_at: null,
    attempts: 0, crashes: 0, stage: null, progress: null, result: null, expires_at: null, fence: coalesce(j.fence, 0),
    queue: coalesce(j.queue, $embedding), seq: coalesce(j.seq, now * 1024000 + n)
  }
  RETURN collect({type: 'requeued', queue: j.queue, address: j.id, details: '{}'}) AS logged
}
{logged}
RETURN size(logged) AS answer
