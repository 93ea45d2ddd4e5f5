// lock_model: one process at a time makes models known.
MATCH (g:MemoryGraph {name: 'graph'})
SET g.version = g.version
