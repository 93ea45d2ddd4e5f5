SELECT {entity}
FROM entity
WHERE project = :project AND name > :after AND valid_from <= :at AND (valid_to > :at OR valid_to IS NULL)
ORDER BY name
LIMIT :limit
