-- find: rows that match, newest first.
SELECT coalesce(json_agg(found), '[]')::text FROM (
    SELECT {facts}, row_to_json(job) AS row FROM {table} AS job
    WHERE {matching}
    ORDER BY {newest}
    LIMIT %(limit)s OFFSET %(offset)s
) AS found
