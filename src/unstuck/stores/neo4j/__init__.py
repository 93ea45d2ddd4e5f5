"""Jobs as nodes of a Neo4j database."""
