-- find: jobs that match, newest first.
SELECT seq, finished_at, queue, id, {job} FROM job WHERE {matching} ORDER BY {order} LIMIT :limit
