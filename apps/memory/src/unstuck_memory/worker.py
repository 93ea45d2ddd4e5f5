"""The app of a memory's worker: ``unstuck worker unstuck_memory.worker:app``. Environment and settings file configure it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from unstuck import Unstuck
from unstuck_memory import settings, settings_file
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.graph import Graph


def worker_app(graph: Graph, provider: Provider, store: str) -> Unstuck:
    """An app whose workers open the graph, look for missing embeddings, and run the jobs."""
    jobs = EmbeddingJobs(graph, provider, store)

    @jobs.app.lifespan
    @asynccontextmanager
    async def at_work() -> AsyncIterator[None]:
        async with graph:
            await graph.migrate()
            async with jobs.repairing():
                yield
        await provider.aclose()

    return jobs.app


settings_file.apply()
_settings = settings.load()
app = worker_app(_settings.graph(), settings.provider(), _settings.jobs_at)
