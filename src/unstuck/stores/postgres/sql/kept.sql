-- kept: records of a kind behind a name.
SELECT name, version, value, updated_at FROM {schema}.records
WHERE kind = %(kind)s AND name > %(after)s ORDER BY name LIMIT %(limit)s
