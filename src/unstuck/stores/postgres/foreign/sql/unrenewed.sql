-- unrenewed: rows whose lease ended long ago, and whose holder still beats: reapers leave them to it. The longest first.
SELECT coalesce(json_agg(found ORDER BY found.lease_until), '[]')::text FROM (
    SELECT {facts} FROM {table} AS job
    WHERE {status} = {processing} AND {lease} < now() - make_interval(secs => %(seconds)s) AND {ended} >= now()
    ORDER BY {lease}
    LIMIT %(limit)s
) AS found
