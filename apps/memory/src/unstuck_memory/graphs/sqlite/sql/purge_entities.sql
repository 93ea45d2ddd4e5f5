-- The last row of an entity stays as long as a relation refers to it.
DELETE FROM entity
WHERE id IN (
    SELECT id FROM entity
    WHERE project = :project AND valid_to IS NOT NULL AND valid_to < :before
        AND NOT EXISTS (SELECT 1 FROM relation WHERE source = entity.id)
        AND NOT EXISTS (SELECT 1 FROM relation WHERE target = entity.id)
    LIMIT :limit
)
RETURNING id
