INSERT OR IGNORE INTO missing (model, since, uid, project, entity)
SELECT :model, valid_from, uid, project, id
FROM entity
WHERE id > :after AND id <= :to AND valid_to IS NULL AND NOT EXISTS (
    SELECT 1 FROM embedding WHERE embedding.entity = entity.id AND embedding.model = :model AND bits IS NOT NULL
)
