"""A memory on a graph of its own, with a queue that notes down its jobs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.neo4j import Neo4j
from support_memory.jobs import Recorded
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.memory import Memory


@pytest.fixture
async def file_graph(tmp_path: Path) -> AsyncIterator[SqliteGraph]:
    async with SqliteGraph(tmp_path / "graph.db") as graph:
        await graph.migrate()
        yield graph


@pytest.fixture
def jobs() -> Recorded:
    return Recorded()


@pytest.fixture
def memory(file_graph: SqliteGraph, jobs: Recorded) -> Memory:
    return Memory(file_graph, "default", jobs)


@pytest.fixture
def graph_at(graph_server: Neo4j) -> Neo4j:
    """Without the graphs of other tests: their entities have no embeddings, either."""
    graph_server.execute("MATCH (n) CALL (n) { DETACH DELETE n } IN TRANSACTIONS OF 1000 ROWS")
    return graph_server
