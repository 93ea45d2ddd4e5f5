// purge_vectors: delete vectors that no entity has had since a time, some at once.
MATCH (found:EmbeddingVector)
WHERE found.unused_since < $before
WITH found LIMIT $limit
WITH found ORDER BY found.model, found.hash
SET found.locked = true
WITH collect(found) AS held
UNWIND held AS v
WITH v
WHERE v.unused_since < $before AND NOT EXISTS { (v)<-[:EMBEDDED]-() }
DELETE v
RETURN count(*)
