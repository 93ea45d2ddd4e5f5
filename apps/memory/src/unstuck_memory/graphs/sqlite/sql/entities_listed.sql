SELECT {entity}
FROM entity
WHERE project = :project AND valid_to IS NULL AND name > :after
ORDER BY name
LIMIT :limit
