-- silent: rows that are processed without a lease, or with one that no clock can have meant, and gave no sign of life
-- for the grace; those that never had any have been silent for long enough.
SELECT coalesce(json_agg(found), '[]')::text FROM (
    SELECT {facts} FROM {table} AS job
    WHERE {status} = {processing} AND ({lease} IS NULL OR {lease} > now() + interval '8 days')
        AND coalesce({signs} NOT BETWEEN now() - make_interval(secs => %(grace)s) AND now() + interval '1 minute', true)
    LIMIT %(limit)s
    {locking}
) AS found
