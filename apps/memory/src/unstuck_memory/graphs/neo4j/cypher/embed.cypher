// embed: connect entities that are locked with their vectors.
UNWIND $chunks AS chunk
MATCH (e:EntityId {uid: chunk.uid})
MATCH (v:EmbeddingVector {model: $model, hash: chunk.hash})
CREATE (e)-[:EMBEDDED {model: $model, version: chunk.version, number: chunk.number, observation: chunk.observation}]->(v)
RETURN count(*)
