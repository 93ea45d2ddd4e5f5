-- The current version, and which embedding was stored last.
SELECT entity.id, entity.valid_from, entity.project, entity.type, embedding.version, embedding.fence
FROM entity LEFT JOIN embedding ON embedding.entity = entity.id AND embedding.model = :model
WHERE entity.uid = :uid AND entity.version = :version AND entity.valid_to IS NULL
