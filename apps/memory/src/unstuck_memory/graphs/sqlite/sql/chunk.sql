SELECT chunk.entity, chunk.observation, vector.numbers
FROM chunk CROSS JOIN vector ON vector.id = chunk.vector
WHERE chunk.entity = :entity AND chunk.model = :model AND chunk.number = :number
