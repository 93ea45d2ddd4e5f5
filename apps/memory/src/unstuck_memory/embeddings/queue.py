"""The queue of embeddings: its options, its store, and its one task."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from msgspec import Struct

from unstuck import (
    ConfigError,
    Enqueued,
    Filter,
    Job,
    Jobs,
    QueueOptions,
    Rate,
    Status,
    Unstuck,
    env_int,
    env_text,
    neo4j_url,
)
from unstuck_memory.values import Entity

QUEUE = "embedding"
TASK = "memory.embed"
AT_ONCE = 64  # jobs in one call of the task
STORE_VARIABLE = "EMBED_JOB_DATABASE_URI"
FULL = 1000  # jobs that wait: so many, and nothing that waited before is added
NEW, OLD = 9, 0  # priorities: of what was written just now, and of what has waited before


class Subject(Struct, frozen=True):
    """What a job is about. Its text is read when it runs."""

    entity_uid: str
    model: str
    version: int


class Done(Struct, frozen=True, omit_defaults=True):
    """The result of a job. ``cached`` of its ``chunks`` had a vector already, for the others ``requests`` were sent."""

    outcome: Literal["embedded", "superseded"]
    chunks: int = 0
    requests: int = 0
    cached: int = 0


Embed = Callable[[Sequence[Subject]], Awaitable[Sequence[Done | Exception]]]


def embedding(environ: Mapping[str, str] = os.environ, *, hosted: bool = True) -> QueueOptions:
    """The options of a queue that asks a provider for embeddings: ``app.queue("embedding", **embedding())``.

    A crash does not count as a failure, and a recovered job is free at once. A worker of this queue starts only
    if ``EMBED_JOB_RETENTION_DAYS`` says how many days finished jobs are kept. A provider that is not ``hosted`` has a
    rate only if the environment sets one.
    """
    tokens = env_int(environ, "EMBEDDING_RATE_LIMIT_TOKENS", least=1, most=1_000_000)
    interval = env_int(environ, "EMBEDDING_RATE_LIMIT_INTERVAL", least=100, most=86_400_000)
    recovery = env_int(environ, "EMBED_JOB_RECOVERY_INTERVAL", least=0, most=86_400_000)
    rated = hosted or tokens is not None or interval is not None
    return QueueOptions(
        lease=300.0,
        heartbeat=120.0,
        max_crashes=10,
        lapse_backoff=(),
        rate=Rate(tokens or 20, (interval or 60_000) / 1000) if rated else None,
        retention_from="EMBED_JOB_RETENTION_DAYS",
        recovery=None if recovery is None else recovery / 1000,
    )


def embed_store(environ: Mapping[str, str] = os.environ) -> str | None:
    """The URL of the store that EMBED_JOB_DATABASE_URI, _USERNAME, _PASSWORD and _NAME name; None without the first."""
    if (uri := env_text(environ, STORE_VARIABLE)) is None:
        return None
    username, password, name = (
        env_text(environ, f"EMBED_JOB_DATABASE_{part}") for part in ("USERNAME", "PASSWORD", "NAME")
    )
    return neo4j_url(uri, username, password, name, what=STORE_VARIABLE)


@asynccontextmanager
async def embed_jobs(environ: Mapping[str, str] = os.environ) -> AsyncIterator[Jobs]:
    """The jobs of that store: ``async with embed_jobs() as jobs: await jobs.release_jobs(ids, owner)``."""
    if (url := embed_store(environ)) is None:
        raise ConfigError(
            f"{STORE_VARIABLE} is not set: it says where embedding jobs are, for example neo4j://host:7687"
        )
    async with Unstuck(url) as app:
        yield await app.jobs()


class EmbeddingQueue:
    """The app with the task, and its jobs: one for each version of an entity and each model."""

    def __init__(self, store: str, options: QueueOptions, embed: Embed) -> None:
        self.app = Unstuck(store)
        self.app.queue(QUEUE, **options)

        @self.app.batch(AT_ONCE, name=TASK, queue=QUEUE)
        async def embed_together(subjects: list[Subject]) -> Sequence[Done | Exception]:
            return await embed(subjects)

        self._task = embed_together

    async def jobs(self) -> Jobs:
        return await self.app.jobs()

    async def add(
        self, entities: Sequence[Entity], model: str, *, priority: int = NEW, again: bool = False
    ) -> list[Enqueued]:
        """Enqueue the jobs of these versions; ``again`` starts those over that are finished."""
        calls = []
        for entity in entities:
            task = self._task.options(key=_key(entity, model), priority=priority, again=again)
            calls.append(task.call(Subject(entity.uid, model, entity.version)))
        return await (await self.jobs()).enqueue([call.job for call in calls])

    async def job_of(self, entity: Entity, model: str) -> Job | None:
        """The job of this version; None if it has none yet, or none any more."""
        which = Filter(queue=QUEUE, key=_key(entity, model))
        found = await (await self.jobs()).find(which, limit=1)
        return found.jobs[0] if found.jobs else None

    async def completed(self, ids: Sequence[str]) -> set[str]:
        """Which of these jobs, a thousand at most, are completed."""
        if not ids:
            return set()
        which = Filter(queue=QUEUE, ids=tuple(ids), status=Status.COMPLETED)
        return {job.id for job in (await (await self.jobs()).find(which, limit=len(ids))).jobs}

    async def full(self) -> bool:
        """Whether so many jobs wait that what waited before need not be added yet."""
        waiting = await (await self.jobs()).find(Filter(queue=QUEUE, status=Status.PENDING), limit=FULL)
        return len(waiting.jobs) >= FULL

    async def close(self) -> None:
        await self.app.__aexit__()


def _key(entity: Entity, model: str) -> str:
    return f"{entity.uid} {entity.version} {model}"
