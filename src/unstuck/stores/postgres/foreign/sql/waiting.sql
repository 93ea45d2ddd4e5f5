-- waiting: when the leases of rows end, and the last sign of their holders, in seconds since 1970.
SELECT {id}::text, extract(epoch FROM {ended})::double precision, extract(epoch FROM {last sign})::double precision
FROM {table} AS job WHERE {id}::text = ANY (%(ids)s)
