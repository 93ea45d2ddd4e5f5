"""A graph of each kind. A test file says by its fixture ``place`` where its graphs live."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support.neo4j import GRAPH, Neo4j
from support_memory.places import Place
from unstuck_memory.graph import Graph


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Place:
    return Place((str(tmp_path / "graph.db"),))


@pytest.fixture
def neo4j_place(graph_server: Neo4j) -> Place:
    """One database for all tests: each has a project of its own, and leaves its nodes behind."""
    return Place((graph_server.uri, "neo4j", "", GRAPH), crowd=6)


@pytest.fixture
def project() -> str:
    return f"project-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def another(place: Place) -> AsyncIterator[Callable[[], Awaitable[Graph]]]:
    """Opens one more graph at the same place, as another process would."""
    async with AsyncExitStack() as stack:

        async def opened() -> Graph:
            graph = await stack.enter_async_context(place.graph())
            await graph.migrate()
            return graph

        yield opened


@pytest.fixture
async def graph(another: Callable[[], Awaitable[Graph]]) -> Graph:
    return await another()


@pytest.fixture
async def elsewhere(tmp_path: Path) -> AsyncIterator[Graph]:
    """A graph in a file of its own, from which archives come and to which they go."""
    async with Place((str(tmp_path / "elsewhere.db"),)).graph() as graph:
        await graph.migrate()
        yield graph
