-- lapsed: rows whose lease ran out, the longest silent first, each locked; one that somebody else has locked is left to
-- him, and one that is renewed meanwhile is looked at again. Blind time does not count: a span in which the holder could
-- not be heard prolongs a lease by as much of it as came after the last sign of life.
SELECT coalesce(json_agg(found ORDER BY found.lease_until), '[]')::text FROM (
    SELECT {facts} FROM {table} AS job
    WHERE {status} = {processing} AND {id}::text <> ALL (%(without)s) AND {lease} < now() AND {ended} + make_interval(secs => (
        SELECT coalesce(sum(greatest(0, extract(epoch FROM
            now() - make_interval(secs => span.until) - greatest(now() - make_interval(secs => span.since), {heard})
        ))), 0)::double precision
        FROM json_to_recordset(%(blind)s::json) AS span (since double precision, until double precision)
    )) < now()
    ORDER BY {lease}
    LIMIT %(limit)s
    {locking}
) AS found
