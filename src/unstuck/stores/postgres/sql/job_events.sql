-- job_events: what happened to one job behind a cursor.
SELECT seq, at, type, queue, job_id, data::text FROM {schema}.job_events
WHERE job_id = %(id)s AND queue = %(queue)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s
