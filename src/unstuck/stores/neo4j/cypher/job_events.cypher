// job_events: what happened to one job behind a cursor.
MATCH (e:{label}Event) WHERE e.job = $address AND e.seq > $after
WITH e ORDER BY e.job, e.seq LIMIT $limit
RETURN collect([e.seq, e.at, e.type, e.queue, e.job, e.details, e.owner]) AS answer
