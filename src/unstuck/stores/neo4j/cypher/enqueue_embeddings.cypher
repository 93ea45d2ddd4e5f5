// enqueue_embeddings: enqueue for jobs that are about an entity, a model and a version. There is one for each of these;
// a node that others made is as good as ours, whatever its id.
WITH datetime.realtime() AS clock
WITH clock.epochMillis AS now, (clock.epochSeconds * 1000000 + clock.microsecond) * 1024 + $chance AS first
UNWIND $embeddings AS row
WITH row, now, first, coalesce(row.run_at, now) + row.delay AS run_at
MERGE (j:{label} {entity_uid: row.entity_uid, model: row.model, version: row.version})
ON CREATE SET j += row.facts, j += {
  id: row.address, created_at: now, run_at: run_at, seq: first + row.number, born: $call,
  rank: CASE WHEN run_at <= now THEN run_at - 60000 * row.facts.priority END,
  due_at: CASE WHEN run_at > now THEN run_at END
}, j += CASE WHEN row.expires IS NULL AND row.expires_at IS NULL THEN {}
  ELSE {expires_at: coalesce(row.expires_at, now + row.expires)} END
RETURN collect([row.number, j.id, coalesce(j.born = $call, false), j.digest]) AS answer
