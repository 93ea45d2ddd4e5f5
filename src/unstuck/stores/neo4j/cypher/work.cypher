// work: is there anything to lease, and in how many milliseconds does the next delayed job become due?
UNWIND $queues AS name
OPTIONAL MATCH (q:{label}Queue {name: name})
WITH name, q.paused_at AS paused_at
WHERE paused_at IS NULL
CALL (name) {
  MATCH (c:{label})
  USING INDEX SEEK c:{label}(queue, rank, seq)
  WHERE c.queue = name AND c.rank IS NOT NULL AND c.seq IS NOT NULL AND c.status = 'pending'
    AND {in_time}
  WITH c LIMIT 1
  RETURN count(c) AS ready
}
CALL (name) {
  MATCH (d:{label})
  USING INDEX SEEK d:{label}(queue, due_at)
  WHERE d.queue = name AND d.due_at IS NOT NULL
  WITH d ORDER BY d.queue, d.due_at LIMIT 1
  RETURN min(d.due_at) AS due
}
WITH sum(ready) AS ready, min(due) AS due
RETURN [ready > 0, due - datetime.realtime().epochMillis] AS answer
