-- events: what happened behind a cursor.
SELECT seq, at, type, queue, job, details FROM event WHERE seq > :after ORDER BY seq LIMIT :limit
