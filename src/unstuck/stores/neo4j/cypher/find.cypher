// find: jobs that match, newest first.
{source}
WITH f ORDER BY {order} LIMIT $limit
WITH f AS j
RETURN collect({job}) AS answer
