-- kept_one: the record with this name.
SELECT version, value, updated_at FROM record WHERE kind = :kind AND name = :record
