// enqueue: add jobs unless their addresses are taken. One that is due has a rank, its position in line, one that is
// delayed a due_at. The time and the chance of the call number the jobs in the order in which they were given.
WITH datetime.realtime() AS clock
WITH clock.epochMillis AS now, (clock.epochSeconds * 1000000 + clock.microsecond) * 1024 + $chance AS first
UNWIND $jobs AS row
WITH row, now, first, coalesce(row.run_at, now) + row.delay AS run_at
MERGE (j:{label} {id: row.address})
ON CREATE SET j += row.facts, j += {
  created_at: now, run_at: run_at, seq: first + row.number, born: $call,
  rank: CASE WHEN run_at <= now THEN run_at - 60000 * row.facts.priority END,
  due_at: CASE WHEN run_at > now THEN run_at END
}, j += CASE WHEN row.expires IS NULL AND row.expires_at IS NULL THEN {}
  ELSE {expires_at: coalesce(row.expires_at, now + row.expires)} END
RETURN collect([row.number, j.id, coalesce(j.born = $call, false), j.digest]) AS answer
