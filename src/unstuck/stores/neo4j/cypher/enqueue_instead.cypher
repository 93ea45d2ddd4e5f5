// enqueue_instead: give the job that stands for a key what a debounced one has. It keeps its id and when it was created. Its
// lock was taken by enqueue_standing.
WITH datetime.realtime().epochMillis AS now
MATCH (j:{label} {id: $address})
WITH j, now + $delay AS run_at, coalesce($expires_at, now + $expires) AS expires_at, j.job_id AS job_id
SET j += {
  key: null, digest: null, max_crashes: null, lane: null, parent: null, trace: null, policy: null
}, j += $facts, j += {job_id: job_id, run_at: run_at, rank: null, due_at: run_at, expires_at: expires_at}
RETURN count(*) AS answer
