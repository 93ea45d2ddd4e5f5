SELECT name, id, created_at
FROM entity
WHERE project = :project AND valid_to IS NULL AND name IN (SELECT value FROM json_each(:names))
