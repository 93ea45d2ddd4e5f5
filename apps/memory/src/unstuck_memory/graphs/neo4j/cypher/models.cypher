// models: those that are known.
MATCH (m:EmbeddingModel)
RETURN m.name, m.dimension, m.number
