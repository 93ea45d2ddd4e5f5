-- kept_one: the record with this name.
SELECT version, value, updated_at FROM {schema}.records WHERE kind = %(kind)s AND name = %(record)s
