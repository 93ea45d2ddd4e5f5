-- job_events: what happened to one job behind a cursor.
SELECT seq, at, type, queue, job, details FROM event
WHERE job = :id AND queue = :queue AND seq > :after ORDER BY seq LIMIT :limit
