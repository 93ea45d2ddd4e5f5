SELECT entity.id, embedding.version, embedding.fence
FROM entity CROSS JOIN embedding ON embedding.entity = entity.id AND embedding.model = :model
WHERE entity.uid = :uid AND entity.valid_to IS NULL AND embedding.bits IS NOT NULL
