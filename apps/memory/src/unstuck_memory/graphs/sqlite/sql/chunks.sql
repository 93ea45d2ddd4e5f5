SELECT vector.hash, vector.numbers, chunk.observation
FROM chunk CROSS JOIN vector ON vector.id = chunk.vector
WHERE chunk.entity = :entity AND chunk.model = :model
ORDER BY chunk.number
