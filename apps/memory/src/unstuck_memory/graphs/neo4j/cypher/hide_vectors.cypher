// hide_vectors: take vectors that no current version has out of the index, and begin to count how long nobody has needed them.
UNWIND $vectors AS vector
MATCH (found:EmbeddingVector {model: vector.model, hash: vector.hash})
SET found.locked = true
WITH collect(found) AS held
UNWIND held AS v
WITH v, EXISTS { MATCH (v)<-[:EMBEDDED]-() } AS used
WHERE NOT EXISTS { MATCH (v)<-[c:EMBEDDED]-(e:Entity) WHERE c.version = e.version }
REMOVE v:$('EmbeddingVector' + v.model)
SET v.unused_since = CASE WHEN used THEN null ELSE {now} END
