"""Embeddings that failed for good: those of current entities of one project, and their next attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from unstuck import Filter, Job, Jobs, Page
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.queue import QUEUE
from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity, Value

PAGE = 200  # dead letters that are read at a time


class FailedEmbedding(Value, frozen=True, kw_only=True):
    """An entity without embeddings, and why its job failed."""

    name: str
    version: int
    job_id: str
    category: str
    code: str
    error: str
    attempts: int
    failed_at: datetime | None


class Failures:
    """Dead letters of other projects, of versions that have passed and of other models are none of them."""

    def __init__(self, graph: Graph, project: str, jobs: EmbeddingJobs) -> None:
        self._graph = graph
        self._project = project
        self._jobs = jobs

    async def found(self, limit: int, after: str | None = None) -> tuple[list[FailedEmbedding], bool]:
        """Up to ``limit`` of them behind a job's id; and whether there are more."""
        found: list[FailedEmbedding] = []
        behind = after is None
        async for failures in self._pages():
            for failure in failures:
                if behind:
                    found.append(failure)
                behind = behind or failure.job_id == after
            if len(found) > limit:
                break
        return found[:limit], len(found) > limit

    async def retry(self, names: Sequence[str] | None = None) -> list[str]:
        """Put their jobs back with fresh attempts: of these entities, or of all. Answers the names."""
        chosen = [
            failure
            async for failures in self._pages()
            for failure in failures
            if names is None or failure.name in names
        ]
        store = await self._store()
        for start in range(0, len(chosen), PAGE):
            ids = tuple(failure.job_id for failure in chosen[start : start + PAGE])
            await store.retry(Filter(queue=QUEUE, ids=ids, dead=True))
        return [failure.name for failure in chosen]

    async def _pages(self) -> AsyncIterator[list[FailedEmbedding]]:
        store, cursor = await self._store(), None
        while True:
            page: Page = await store.find(Filter(queue=QUEUE, dead=True), PAGE, cursor)
            yield await self._here(page.jobs)
            if (cursor := page.cursor) is None:
                return

    async def _here(self, jobs: Sequence[Job]) -> list[FailedEmbedding]:
        subjects = [(job, _subject(job)) for job in jobs]
        entities = await self._entities([subject.get("entity_uid", "") for _, subject in subjects])
        return [
            _failure(job, entity)
            for job, subject in subjects
            if (entity := entities.get(subject.get("entity_uid", ""))) is not None
            and (subject.get("version"), subject.get("model")) == (entity.version, self._jobs.provider.name)
        ]

    async def _entities(self, uids: Sequence[str]) -> dict[str, Entity]:
        """Those of this project that are current."""
        names = [entity.name for entity in await self._graph.get_by_uid(list(dict.fromkeys(uids)))]
        here = await self._graph.get_entities(self._project, names)
        return {entity.uid: entity for entity in here}

    async def _store(self) -> Jobs:
        return await self._jobs.app.jobs()


def _subject(job: Job) -> Mapping[str, Any]:
    subject = job.payload.get("subjects") if isinstance(job.payload, dict) else None
    return subject if isinstance(subject, dict) else {}


def _failure(job: Job, entity: Entity) -> FailedEmbedding:
    error = job.error
    return FailedEmbedding(
        name=entity.name,
        version=entity.version,
        job_id=job.id,
        category=str(error.category) if error else "",
        code=error.code if error else "",
        error=" ".join(error.message.split())[:500] if error else "",
        attempts=job.attempts,
        failed_at=job.finished_at,
    )
