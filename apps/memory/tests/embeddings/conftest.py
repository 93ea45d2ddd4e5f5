"""A provider over real HTTP, and a graph whose jobs use it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support_memory.embedding_server import EmbeddingServer
from support_memory.queued import Queued
from unstuck_memory.embeddings.providers.openai import OpenAIProvider
from unstuck_memory.graphs.sqlite import SqliteGraph


@pytest.fixture(autouse=True)
def retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker starts without it."""
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


@pytest.fixture
async def hosted(server: EmbeddingServer) -> AsyncIterator[OpenAIProvider]:
    """It has asked for its dimension: all requests from now on are embeddings."""
    provider = OpenAIProvider("key", base_url=server.url, model="m", timeout=60)
    await provider.model()
    server.requests.clear()
    yield provider
    await provider.aclose()


@pytest.fixture
async def queued(file_graph: SqliteGraph, hosted: OpenAIProvider, tmp_path: Path) -> AsyncIterator[Queued]:
    async with Queued(file_graph, hosted, tmp_path) as queued:
        yield queued
