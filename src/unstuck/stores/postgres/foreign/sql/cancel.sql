-- cancel: fail rows that are not finished, taking the lease of a running one away.
UPDATE {table} AS job SET
    {column owner} = {none owner},
    {column beat} = {none beat},
    {column fail_code} = 'cancelled'::{type fail_code},
    {column fail_reason} = 'cancelled by request'::{type fail_reason},
    {column error_code} = 'cancelled'::{type error_code},
    {column error_message} = 'cancelled by request'::{type error_message},
    {column updated} = clock_timestamp(),
    {column lease} = {none lease},
    {column status} = {failed}
FROM (
    SELECT {id} AS found FROM {table} AS job
    WHERE {id} = ANY (ARRAY(SELECT json_array_elements_text(%(ids)s::json)::{type id}))
        AND {status} IN ({queued}, {processing})
    ORDER BY {id}
    FOR UPDATE
) AS named WHERE {id} = named.found
RETURNING {id}::text
