"""A graph in Neo4j. Only this folder imports the driver."""

from unstuck_memory.graphs.neo4j.graph import Neo4jGraph as Neo4jGraph
