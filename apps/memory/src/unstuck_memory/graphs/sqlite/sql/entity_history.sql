SELECT {entity}
FROM entity
WHERE project = :project AND name = :name
ORDER BY valid_from
