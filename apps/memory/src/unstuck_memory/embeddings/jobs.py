"""EmbeddingJobs: the jobs of a graph's embeddings, for the memory, its workers and its operators."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from unstuck import Enqueued, HealthStatus, Job, Unstuck, Worker
from unstuck_memory import checks
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.embeddings.queue import QUEUE, EmbeddingQueue, embedding
from unstuck_memory.embeddings.repair import Repair
from unstuck_memory.embeddings.work import Work
from unstuck_memory.errors import NotFound
from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity

MOST = 1000  # jobs that one round by hand may run


class EmbeddingJobs:
    """Made of a graph, a provider and the URL of a job store; the graph must be open when jobs run::

        async with EmbeddingJobs(graph, provider, "sqlite:///jobs.db") as jobs:
            while True:
                await jobs.process_jobs(10)
                await asyncio.sleep(10)

    The store is opened when it is first needed. A worker of the command runs the jobs of ``app``; then its lifespan holds
    ``repairing()``.
    """

    def __init__(
        self, graph: Graph, provider: Provider, store: str, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.provider = provider
        self._graph = graph
        work = Work(graph, provider)
        self._queue = EmbeddingQueue(store, embedding(environ, hosted=provider.hosted), work.embed)
        self._repair = Repair(graph, self._queue, work.model)
        self._worker: Worker | None = None

    @property
    def app(self) -> Unstuck:
        return self._queue.app

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._queue.close()

    async def schedule(self, entities: Sequence[Entity], *, again: bool = False) -> list[Enqueued]:
        """See that each of these versions has its job; ``again`` starts those over that are finished. No provider is called."""
        return await self._queue.add(entities, self.provider.name, again=again) if entities else []

    async def schedule_entity_embedding(self, project: str, name: str, *, again: bool = False) -> Enqueued:
        """See that one entity has its job; ``again`` starts it over if it is finished. Answers its id and whether it is new."""
        project, name = checks.project(project), checks.name("name", name)
        found = await self._graph.get_entities(project, [name])
        if not found:
            raise NotFound(f"project {project!r} has no entity {name!r}: create it, or look at its spelling")
        [answer] = await self._queue.add(found, self.provider.name, again=again)
        return answer

    async def job_of(self, entity: Entity) -> Job | None:
        """The job of this version; None if it has none yet, or none any more."""
        return await self._queue.job_of(entity, self.provider.name)

    async def process_jobs(self, limit: int = 10) -> int:
        """Run up to ``limit`` jobs, 1 to 1,000, and answer how many ran. Once a minute, look for missing embeddings before."""
        if self._worker is None:
            self._worker = Worker(self.app, concurrency=MOST)
        await self._repair.if_due()
        return await self._worker.process_jobs(limit)

    @asynccontextmanager
    async def repairing(self) -> AsyncIterator[None]:
        """Look for missing embeddings at once and each minute, for the length of a block."""
        running = asyncio.create_task(self._repair.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])

    async def get_queue_status(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return await (await self._queue.jobs()).get_queue_status(QUEUE)

    async def count_dead_letters(self) -> int:
        """How many jobs failed for good, and wait for somebody to retry them."""
        counts = await (await self._queue.jobs()).counts()
        return sum(of.dead for of in counts if of.queue == QUEUE)

    async def get_health_status(self) -> HealthStatus:
        """HEALTHY, DEGRADED or CRITICAL, and why: of the queue and its workers, or of the rounds that were run here."""
        jobs = await self._queue.jobs()
        unused = await jobs.strange(QUEUE)  # which is no trouble here: nothing has been written yet
        found = await jobs.get_health_status(None if unused else QUEUE)
        if self._worker is None or found.workers or found.status == "CRITICAL":
            return found
        own = self._worker.get_health_status()
        ended = own.successes + own.failures
        return HealthStatus(
            status=own.status,
            why=own.why,
            consecutive_failures=own.consecutive_failures,
            success_rate=own.successes / ended if ended else None,
            last_success=own.last_success,
            patterns=own.patterns,
            workers=1,
            consuming=own.consuming,
        )

    async def retry_failed_jobs(self) -> int:
        """Put all dead letters back, with fresh attempts."""
        return await (await self._queue.jobs()).retry_failed_jobs(QUEUE)

    async def cleanup_jobs(self, days: float = 14.0) -> int:
        """Delete jobs that finished more than so many days ago."""
        return await (await self._queue.jobs()).cleanup_jobs(days, QUEUE)

    async def recover_stale_jobs(self) -> int:
        """Put jobs back whose worker is gone or silent; answers how many those were."""
        return await (await self._queue.jobs()).recover_stale_jobs()

    async def release_jobs(self, ids: Sequence[str], owner: str) -> int:
        """Put back what ``owner`` has leased of these, unspent; jobs of others are left alone."""
        return await (await self._queue.jobs()).release_jobs(ids, owner)
