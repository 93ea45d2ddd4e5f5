DELETE FROM relation
WHERE id IN (
    SELECT id FROM relation WHERE project = :project AND valid_to IS NOT NULL AND valid_to < :before LIMIT :limit
)
