// migrated: note the schema's version. The birth tells this database from any other that may answer at its address later.
MERGE (g:MemoryGraph {name: 'graph'})
SET g.birth = coalesce(g.birth, randomUUID()), g.version = CASE WHEN g.version > $version THEN g.version ELSE $version END
