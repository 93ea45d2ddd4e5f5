WITH chosen (id) AS MATERIALIZED (
    SELECT id FROM entity
    WHERE project = :project AND valid_to IS NULL AND name IN (SELECT value FROM json_each(:names))
),
found (id) AS (
    SELECT relation.id FROM chosen CROSS JOIN relation ON relation.source = chosen.id AND relation.valid_to IS NULL
    UNION
    SELECT relation.id FROM chosen CROSS JOIN relation ON relation.target = chosen.id AND relation.valid_to IS NULL
)
SELECT {relation}
FROM found CROSS JOIN relation ON relation.id = found.id
JOIN entity AS source ON source.id = relation.source JOIN entity AS target ON target.id = relation.target
ORDER BY source.name, target.name, relation.type
LIMIT :limit
