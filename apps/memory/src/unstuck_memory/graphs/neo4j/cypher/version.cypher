// version: of the schema; no row if there is none.
MATCH (g:MemoryGraph {name: 'graph'}) RETURN g.version
