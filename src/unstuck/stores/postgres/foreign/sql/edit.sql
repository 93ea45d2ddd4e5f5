-- edit: give rows that wait another time.
UPDATE {table} AS job SET
    {column updated} = clock_timestamp(),
    {column run_at} = %(run_at)s::timestamptz
FROM (
    SELECT {id} AS found FROM {table} AS job
    WHERE {id} = ANY (ARRAY(SELECT json_array_elements_text(%(ids)s::json)::{type id})) AND {status} = {queued}
    ORDER BY {id}
    FOR UPDATE
) AS named WHERE {id} = named.found
RETURNING {id}::text
