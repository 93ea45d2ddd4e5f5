SELECT chunk.entity, chunk.observation, vector.numbers
FROM json_each(:uids) AS asked
CROSS JOIN entity ON entity.uid = asked.value AND entity.valid_to IS NULL AND entity.project = :project
CROSS JOIN embedding ON embedding.entity = entity.id AND embedding.model = :model AND embedding.bits IS NOT NULL
CROSS JOIN chunk ON chunk.entity = entity.id AND chunk.model = :model
CROSS JOIN vector ON vector.id = chunk.vector
