-- One that has been used again since it was not stays.
DELETE FROM vector
WHERE id IN (SELECT value FROM json_each(:vectors)) AND NOT EXISTS (SELECT 1 FROM chunk WHERE chunk.vector = vector.id)
