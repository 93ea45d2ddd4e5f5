UPDATE relation
SET valid_to = :valid_to
WHERE id IN (
    SELECT id FROM relation WHERE source = :id AND valid_to IS NULL
    UNION ALL
    SELECT id FROM relation WHERE target = :id AND valid_to IS NULL
)
