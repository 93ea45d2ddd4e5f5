-- find: jobs that match, newest first.
SELECT seq, (extract(epoch FROM finished_at) * 1000000)::bigint, row_to_json(found)::text FROM (
    SELECT {job}, jobs.seq FROM {source} WHERE {matching} ORDER BY {order} LIMIT %(limit)s
) AS found
