-- find: jobs that match, newest first.
SELECT seq, {columns} FROM job WHERE {matching} ORDER BY {order} LIMIT :limit
