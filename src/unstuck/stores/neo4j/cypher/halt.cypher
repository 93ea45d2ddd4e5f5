// halt: stop leasing from queues after a CRITICAL error. A pause keeps its time and its reason.
UNWIND $halts AS row
MERGE (q:{label}Queue {name: row.queue})
SET q.name = q.name
WITH q, row, datetime.realtime().epochMillis AS now
WITH q, row, now, coalesce(q.paused_at, now) AS since,
  CASE WHEN q.paused_why = q.halted_why THEN row.why ELSE coalesce(q.paused_why, row.why) END AS why
SET q.paused_at = since, q.paused_why = why, q.halted_at = CASE WHEN since > now THEN since ELSE now END, q.halted_why = row.why
WITH collect({type: 'paused', queue: row.queue, details: row.details}) AS logged
{logged}
RETURN size(logged) AS answer
