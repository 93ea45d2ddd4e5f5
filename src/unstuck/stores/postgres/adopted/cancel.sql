-- cancel: fail rows that are not finished, taking the lease of a running one away.
UPDATE {table} AS job SET
    {column owner} = NULL,
    {column beat} = NULL,
    {column fail_code} = 'cancelled',
    {column fail_reason} = 'cancelled by request',
    {column error_code} = 'cancelled',
    {column error_message} = 'cancelled by request',
    {column updated} = clock_timestamp(),
    {column lease} = NULL,
    {column status} = {failed}
FROM (
    SELECT {id} AS found FROM {table} AS job
    WHERE {id} = ANY (ARRAY(SELECT json_array_elements_text(%(ids)s::json)::{type id}))
        AND {status} IN ({queued}, {processing})
    ORDER BY {id}
    FOR UPDATE
) AS named WHERE {id} = named.found
RETURNING {id}::text
