-- kept: records of a kind behind a name.
SELECT name, version, value, updated_at FROM record WHERE kind = :kind AND name > :after ORDER BY name LIMIT :limit
