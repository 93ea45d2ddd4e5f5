// keep_vectors: one for each text and model, written only where it is not what it was: the index would have to learn it again. They
// come in order, as in all statements that lock vectors.
UNWIND $vectors AS kept
MERGE (v:EmbeddingVector {model: $model, hash: kept.hash})
SET v.locked = true
SET v:$('EmbeddingVector' + $model)
REMOVE v.unused_since
WITH v, kept
WHERE v.vector IS NULL OR v.vector <> kept.vector
CALL db.create.setNodeVectorProperty(v, 'vector', kept.vector)
