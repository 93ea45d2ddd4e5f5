-- lapsed: rows whose lease had run out when the reaper read the clock, the longest silent first, each locked; one that
-- somebody else has locked is left to him, and one that is renewed meanwhile is looked at again. Blind time does not
-- count: a span in which the holder could not reach the database prolongs a lease by as much of it as came after the last sign of
-- life.
WITH look AS MATERIALIZED (SELECT least(now(), %(as_of)s::timestamptz) AS at)
SELECT coalesce(json_agg(found ORDER BY found.lease_until), '[]')::text FROM (
    SELECT {facts} FROM {table} AS job
    WHERE {status} = {processing} AND {id}::text <> ALL (%(without)s) AND {lease} < (SELECT at FROM look)
        AND {ended} + make_interval(secs => (
            SELECT coalesce(sum(greatest(0, extract(epoch FROM
                look.at - make_interval(secs => span.until) - greatest(look.at - make_interval(secs => span.since), {last sign})
            ))), 0)::double precision
            FROM look, json_to_recordset(%(blind)s::json) AS span (since double precision, until double precision)
        )) < (SELECT at FROM look)
    ORDER BY {lease}
    LIMIT %(limit)s
    {locking}
) AS found
