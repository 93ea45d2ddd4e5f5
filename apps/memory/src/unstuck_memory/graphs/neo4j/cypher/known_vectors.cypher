// known_vectors: by the hashes of their texts.
UNWIND $hashes AS hash
MATCH (v:EmbeddingVector {model: $model, hash: hash})
RETURN v.hash, v.vector
