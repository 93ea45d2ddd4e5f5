// events: what happened behind a cursor.
MATCH (e:{label}Event) WHERE e.seq > $after
WITH e ORDER BY e.seq LIMIT $limit
RETURN collect([e.seq, e.at, e.type, e.queue, e.job, e.details, e.owner]) AS answer
