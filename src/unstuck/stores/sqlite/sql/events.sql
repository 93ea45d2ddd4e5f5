-- events: what happened behind a place in the log.
SELECT seq, at, type, queue, job, details FROM event WHERE seq > :after ORDER BY seq LIMIT :limit
