// verify: jobs that break a rule which must always hold, as rule, queue and address. Community knows no constraints but
// uniqueness, so nothing else forbids these.
CALL () {
  MATCH (j:{label})
  UNWIND [
    ['an id is a text', NOT coalesce(j.id > '', false)],
    ['a state is one of four', NOT j.status IN ['pending', 'processing', 'completed', 'failed']],
    ['a processing job has an owner and a fence', j.status = 'processing' AND (j.lock_owner IS NULL OR j.fence <= 0)],
    ['only a processing job has an owner or a lease',
      j.status <> 'processing' AND coalesce(j.lock_owner, toString(j.lock_until), toString(j.heartbeat_at)) IS NOT NULL],
    ['finished means processed_at, and nothing else does',
      (j.processed_at IS NOT NULL) <> (j.status IN ['completed', 'failed'])],
    ['only a job that waits has a place in line',
      coalesce(j.rank, j.due_at) IS NOT NULL AND j.status <> 'pending'],
    ['a job that waits is in line or delayed',
      j.status = 'pending' AND (j.rank IS NULL) = (j.due_at IS NULL)],
    ['a place in line is that of its time and priority',
      CASE WHEN j.run_at >= 0 THEN j.rank <> j.run_at - 60000 * {priority} END],
    ['crashes are attempts', j.crashes < 0 OR coalesce(j.crashes, 0) > j.attempts],
    ['attempts stay within their budget', j.attempts > j.max_attempts + coalesce(j.max_crashes, 0)],
    ['no lease was ended that was not granted', j.settled_fence > j.fence],
    ['a failed job says why', j.status = 'failed' AND j.error IS NULL]
  ] AS rule
  WITH j, rule WHERE rule[1]
  RETURN rule[0] AS broken, j.queue AS queue, j.id AS address
  LIMIT $limit
  UNION ALL
  MATCH (e:{label}Event) WHERE e.job IS NOT NULL AND NOT EXISTS { MATCH (:{label} {id: e.job}) }
  RETURN 'events die with their job' AS broken, e.queue AS queue, e.job AS address
  LIMIT $limit
}
RETURN collect([broken, queue, address])[..$limit] AS answer
