"""A graph in Neo4j."""
