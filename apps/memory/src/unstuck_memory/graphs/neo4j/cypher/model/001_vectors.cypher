// 001_vectors: the indexes of one model. A vector has the label EmbeddingVector{number} only while a current version of an entity has
// it: 5.26 filters what the vector index finds only afterwards. An entity has missing_{number} only while it lacks an embedding.
CREATE VECTOR INDEX memory_vectors_{number} IF NOT EXISTS FOR (v:EmbeddingVector{number}) ON v.vector
OPTIONS {indexConfig: {`vector.dimensions`: {dimension}, `vector.similarity_function`: 'cosine'}};
CREATE INDEX memory_missing_{number} IF NOT EXISTS FOR (e:Entity) ON (e.missing_{number});
CREATE INDEX memory_missing_project_{number} IF NOT EXISTS FOR (e:Entity) ON (e.project, e.missing_{number});
