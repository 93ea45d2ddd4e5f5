WITH found (id) AS (
    SELECT id FROM relation WHERE source = :id AND valid_to IS NULL
    UNION
    SELECT id FROM relation WHERE target = :id AND valid_to IS NULL
)
SELECT {relation}
FROM found CROSS JOIN relation ON relation.id = found.id
JOIN entity AS source ON source.id = relation.source JOIN entity AS target ON target.id = relation.target
ORDER BY relation.id
