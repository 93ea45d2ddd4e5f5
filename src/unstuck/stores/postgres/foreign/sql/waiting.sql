-- waiting: when the leases of rows end, and when their holders were last heard, in seconds since 1970.
SELECT {id}::text, extract(epoch FROM {ended})::double precision, extract(epoch FROM {heard})::double precision
FROM {table} AS job WHERE {id}::text = ANY (%(ids)s)
