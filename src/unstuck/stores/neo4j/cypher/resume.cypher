// resume: lift a pause, a halt or both.
CALL () {
  MATCH (q:{label}Queue {name: $queue})
  SET q.name = q.name
  WITH q WHERE q.paused_at IS NOT NULL
  SET q.paused_at = null, q.paused_why = null, q.halted_at = null, q.halted_why = null
  RETURN collect({type: 'resumed', queue: q.name, details: '{}'}) AS logged
}
{logged}
RETURN size(logged) AS answer
