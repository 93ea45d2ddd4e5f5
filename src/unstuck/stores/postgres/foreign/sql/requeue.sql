-- requeue: put finished rows back, as if they were new.
WITH named AS MATERIALIZED (
    SELECT {id} AS found FROM {table} AS job
    WHERE {status} IN ({failed}, {done}) AND {matching}
    ORDER BY {id}
    LIMIT %(limit)s
    FOR UPDATE OF job SKIP LOCKED
)
UPDATE {table} AS job SET
    {column owner} = {none owner},
    {column beat} = {none beat},
    {column run_at} = {none run_at},
    {column fail_code} = {none fail_code},
    {column fail_reason} = {none fail_reason},
    {column error_code} = {none error_code},
    {column error_message} = {none error_message},
    {column updated} = clock_timestamp(),
    {column lease} = {none lease},
    {column attempts} = 0,
    {column status} = {queued}
FROM named WHERE {id} = named.found
RETURNING {id}::text
