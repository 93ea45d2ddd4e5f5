"""A graph with its queue of embeddings, as tests of workers begin."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.graph import Graph
from unstuck_memory.memory import Memory
from unstuck_memory.values import Entity

from support_memory.conformance.given import new
from unstuck import Filter, Job, Jobs
from unstuck.testing import SQLiteHarness

MANY = {"EMBEDDING_RATE_LIMIT_TOKENS": "1000000"}  # for tests that are about something else


class Patient(EmbeddingJobs):
    """Makes a round again from which nothing came: jobs are given back if the machine stands still while their token gets too old."""

    async def process_jobs(self, limit: int = 10) -> int:
        for _ in range(3):
            if ran := await super().process_jobs(limit):
                return ran
        return 0


class Queued:
    """Close it with ``async with``: the store of the jobs is in the folder."""

    def __init__(
        self, graph: Graph, provider: Provider, folder: Path, environ: Mapping[str, str] = MANY
    ) -> None:
        self.graph = graph
        self.harness = SQLiteHarness(folder)
        """To age what is stored."""
        self.queue = Patient(graph, provider, self.harness.url, environ)
        self.memory = Memory(graph, "default", self.queue)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.queue.__aexit__(None, None, None)

    async def create(self, *names: str, observations: Sequence[str] = ()) -> list[Entity]:
        written = await self.memory.create_entities([new(name, *observations) for name in names])
        assert written.scheduled
        return list(written.entities)

    async def store(self) -> Jobs:
        return await self.queue.app.jobs()

    async def jobs(self) -> dict[tuple[str, int], Job]:
        """All jobs, by the names that their entities have now, and by version."""
        found = (await (await self.store()).find(Filter(), 1000)).jobs
        subjects = [job.payload["subjects"] for job in found]
        names = {
            entity.uid: entity.name
            for entity in await self.graph.get_by_uid([each["entity_uid"] for each in subjects])
        }
        return {
            (names.get(each["entity_uid"], "gone"), each["version"]): job
            for each, job in zip(subjects, found, strict=True)
        }

    async def states(self) -> dict[str, str]:
        """What became of the jobs of entities that have one version."""
        return {name: str(job.status) for (name, _), job in (await self.jobs()).items()}

    async def result(self, name: str, version: int = 1) -> Any:
        return (await self.jobs())[name, version].result
