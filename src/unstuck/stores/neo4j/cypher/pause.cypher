// pause: stop leasing from queues. A second pause keeps the first one's time and takes the new reason.
UNWIND $pauses AS row
MERGE (q:{label}Queue {name: row.queue})
SET q.name = q.name
WITH q, row, datetime.realtime().epochMillis AS now
SET q.paused_at = coalesce(q.paused_at, now), q.paused_why = row.why
WITH collect({type: 'paused', queue: row.queue, details: row.details}) AS logged
{logged}
RETURN size(logged) AS answer
