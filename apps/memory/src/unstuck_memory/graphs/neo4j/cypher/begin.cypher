// begin: the first statement of each transaction that writes: which database this is, and which models it knows.
MATCH (g:MemoryGraph {name: 'graph'})
RETURN g.birth, g.version, COLLECT { MATCH (m:EmbeddingModel) RETURN [m.name, m.dimension, m.number] }
