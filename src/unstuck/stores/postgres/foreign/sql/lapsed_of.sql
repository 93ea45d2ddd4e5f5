-- lapsed_of: rows that workers of ours hold which are known to be dead, whether their leases ran out or not.
SELECT coalesce(json_agg(found ORDER BY found.lease_until), '[]')::text FROM (
    SELECT {facts} FROM {table} AS job
    WHERE {status} = {processing} AND {holder} = ANY (%(of)s)
    ORDER BY {lease}
    LIMIT %(limit)s
    FOR UPDATE OF job SKIP LOCKED
) AS found
