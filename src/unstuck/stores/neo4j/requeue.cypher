// requeue: make finished jobs pending again with fresh budgets. The fence goes on, so old leases stay refused.
CALL () {
  {finished}
  SET j += {
    status: 'pending', run_at: now, rank: now - 60000 * coalesce(j.priority, 0), processed_at: null, started_at: null,
    attempts: 0, crashes: 0, stage: null, progress: null, result: null, fence: coalesce(j.fence, 0),
    queue: coalesce(j.queue, $embedding), seq: coalesce(j.seq, now * 4096000)
  }
  RETURN collect({type: 'requeued', queue: j.queue, address: j.id, details: '{}'}) AS told
}
{told}
RETURN size(told) AS answer
