-- adopt: give rows their first lease.
UPDATE {table} AS job SET
    {column beat} = clock_timestamp(),
    {column lease} = clock_timestamp() + make_interval(secs => %(grace)s)
FROM json_array_elements_text(%(ids)s::json) AS named (id) WHERE {id} = named.id::{type id}
RETURNING {id}::text
