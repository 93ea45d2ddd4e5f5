"""A server on a graph of its own, in this process."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client
from support_memory.tool_calls import filled
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.server import memory_server
from unstuck_memory.mcp.tools import tools
from unstuck_memory.memory import Memory
from unstuck_memory.search import Search


@pytest.fixture(autouse=True)
def retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker starts without it."""
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")


@pytest.fixture
async def served(file_graph: SqliteGraph, tmp_path: Path) -> AsyncIterator[Served]:
    provider = MockProvider()
    async with EmbeddingJobs(file_graph, provider, f"sqlite:///{tmp_path / 'jobs.db'}") as jobs:
        memory = Memory(file_graph, "default", jobs)
        yield Served(file_graph, jobs, memory, Search(file_graph, provider, "default"))


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with Client(memory_server(served, tools(debug=True))) as client:
        yield client


@pytest.fixture
async def known(served: Served, client: Client) -> Client:
    """A client of a memory that has three entities, all of them embedded."""
    await filled(client)
    await served.jobs.process_jobs(10)
    return client
