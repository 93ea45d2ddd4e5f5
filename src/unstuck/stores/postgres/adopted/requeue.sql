-- requeue: put finished rows back, as if they were new.
WITH named AS MATERIALIZED (
    SELECT {id} AS found FROM {table} AS job
    WHERE {status} IN ({failed}, {done}) AND {matching}
    ORDER BY {id}
    LIMIT %(limit)s
    FOR UPDATE OF job SKIP LOCKED
)
UPDATE {table} AS job SET
    {column owner} = NULL,
    {column beat} = NULL,
    {column run_at} = NULL,
    {column fail_code} = NULL,
    {column fail_reason} = NULL,
    {column error_code} = NULL,
    {column error_message} = NULL,
    {column updated} = clock_timestamp(),
    {column lease} = NULL,
    {column attempts} = 0,
    {column status} = {queued}
FROM named WHERE {id} = named.found
RETURNING {id}::text
