-- find: jobs that match, newest first.
SELECT seq, {job} FROM job WHERE {matching} ORDER BY {order} LIMIT :limit
