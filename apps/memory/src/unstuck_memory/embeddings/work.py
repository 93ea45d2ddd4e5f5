"""What a batch of jobs does: read the entities, ask the provider for what has no vector yet, store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from unstuck import Category, Context, classify, current_jobs, register
from unstuck_memory.embeddings.error_log import bind_facts, rate_of
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.embeddings.queue import Done, Subject
from unstuck_memory.embeddings.texts import Text, texts_of
from unstuck_memory.errors import GraphDamaged, InvalidInput
from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity, Version
from unstuck_memory.vectors import Chunk, Embedding, Model, Vector

TEXTS = 256  # of a request
BYTES = 300_000  # of its texts, so that no provider has to make two of it
PATIENCE = 1.0  # seconds that jobs which have not begun wait for a token, before they are given back

register(GraphDamaged, Category.CRITICAL)
register(InvalidInput, Category.PERMANENT)

SUPERSEDED = Done("superseded")


@dataclass
class _Job:
    """One job of the batch, whose version is current."""

    number: int
    context: Context
    entity: Entity
    texts: tuple[Text, ...] = ()
    missing: dict[bytes, str] = field(default_factory=dict)  # texts that it asks the provider for
    requests: int = 0

    @property
    def cached(self) -> int:
        return len(self.texts) - len(self.missing)

    def ready(self, vectors: Mapping[bytes, Vector]) -> bool:
        return all(text.hash in vectors for text in self.texts)


class Work:
    """Embeds for one graph by one provider."""

    def __init__(self, graph: Graph, provider: Provider) -> None:
        self._graph = graph
        self._provider = provider
        self._known: Model | None = None

    async def model(self) -> Model:
        """The provider's model, known to the graph."""
        if self._known is None:
            model = await self._provider.model()
            await self._graph.use_model(model)
            self._known = model
        return self._known

    async def embed(self, subjects: Sequence[Subject]) -> Sequence[Done | Exception]:
        """An answer for each subject; called by a worker as the handler of these jobs.

        What is not current any more, or wants another model, is superseded. Jobs are stored as soon as their last vector is
        there: if the provider fails then, the rest has its error as an answer. A PERMANENT error is raised, so that the engine
        finds out whose it is; what was stored is asked for no more.
        """
        contexts = current_jobs()
        answers: dict[int, Done | Exception] = {}
        jobs: list[_Job] = []
        try:
            jobs = await self._current(subjects, contexts)
            await self._embed(jobs, answers)
        except Exception as error:
            left = [job for job in jobs if job.number not in answers]
            await self._explain(error, left, contexts[0])
            if not answers or classify(error).category is not Category.TRANSIENT:
                raise
            answers |= {job.number: error for job in left}
        return [answers.get(number, SUPERSEDED) for number in range(len(subjects))]

    async def _current(self, subjects: Sequence[Subject], contexts: Sequence[Context]) -> list[_Job]:
        found = await self._graph.current(
            [Version(uid=each.entity_uid, version=each.version) for each in subjects]
        )
        return [
            _Job(number, contexts[number], entity)
            for number, (subject, entity) in enumerate(zip(subjects, found, strict=True))
            if entity is not None and subject.model == self._provider.name
        ]

    async def _embed(self, jobs: Sequence[_Job], answers: dict[int, Done | Exception]) -> None:
        vectors = await self._read(jobs) if jobs else {}
        await self._store(jobs, vectors, answers)
        if len(answers) == len(jobs):
            await current_jobs()[0].give_back_token()
        for request in _requests(jobs):
            # Jobs of which a part is embedded wait as long as it takes; others may be another worker's.
            patience = None if any(job.requests for job in request.jobs) else PATIENCE
            await request.jobs[0].context.token(patience=patience)
            rows = await self._provider.embed(list(request.texts.values()))
            vectors |= zip(request.texts, rows, strict=True)
            for job in request.jobs:
                job.requests += 1
            await self._store(jobs, vectors, answers)

    async def _read(self, jobs: Sequence[_Job]) -> dict[bytes, Vector]:
        """Find the jobs' texts, and the vectors that these have already."""
        model = await self.model()
        entities = [job.entity for job in jobs]
        found = await asyncio.to_thread(lambda: [texts_of(entity, self._provider) for entity in entities])
        hashes = dict.fromkeys(text.hash for texts in found for text in texts)
        known = dict(await self._graph.known_vectors(model, list(hashes)))
        asked = set(known)
        for job, texts in zip(jobs, found, strict=True):
            job.texts = texts
            job.missing = {text.hash: text.text for text in texts if text.hash not in asked}
            asked |= job.missing.keys()
        return known

    async def _store(
        self, jobs: Sequence[_Job], vectors: dict[bytes, Vector], answers: dict[int, Done | Exception]
    ) -> None:
        """Store the jobs that have all their vectors by now."""
        ready = [job for job in jobs if job.number not in answers and job.ready(vectors)]
        if not ready:
            return
        model = await self.model()
        stored = await self._graph.store_embeddings([_embedding(job, model, vectors) for job in ready])
        for job, current in zip(ready, stored, strict=True):
            done = Done("embedded", chunks=len(job.texts), requests=job.requests, cached=job.cached)
            answers[job.number] = done if current else SUPERSEDED

    async def _explain(self, error: Exception, jobs: Sequence[_Job], first: Context) -> None:
        rate = await rate_of(first)
        for job in jobs:
            bind_facts(
                job.context,
                error,
                model=self._provider.name,
                entity=job.entity,
                cached=job.cached,
                texts=len(job.texts),
                rate=rate,
            )
        if not jobs:  # the graph did not answer: nothing is known of the entities
            bind_facts(first, error, model=self._provider.name, entity=None, cached=0, texts=0, rate=rate)


@dataclass
class _Request:
    jobs: list[_Job] = field(default_factory=list)
    texts: dict[bytes, str] = field(default_factory=dict)
    size: int = 0

    def fits(self, texts: Mapping[bytes, str]) -> bool:
        return len(self.texts) + len(texts) <= TEXTS and self.size + _size(texts) <= BYTES

    def add(self, job: _Job, texts: Mapping[bytes, str]) -> None:
        self.jobs.append(job)
        self.texts |= texts
        self.size += _size(texts)


def _requests(jobs: Sequence[_Job]) -> Iterator[_Request]:
    """As few as possible. A job's texts are in one request if they fit, so that no job waits for a second one in vain."""
    request = _Request()
    for job in jobs:
        for texts in _parts(job.missing):
            if request.jobs and not request.fits(texts):
                yield request
                request = _Request()
            request.add(job, texts)
    if request.jobs:
        yield request


def _parts(texts: Mapping[bytes, str]) -> Iterator[dict[bytes, str]]:
    """The texts of one job, in as many parts as they need."""
    part = _Request()
    for hash_, text in texts.items():
        if part.texts and not part.fits({hash_: text}):
            yield part.texts
            part = _Request()
        part.texts[hash_] = text
        part.size += len(text.encode())
    if part.texts:
        yield part.texts


def _size(texts: Mapping[bytes, str]) -> int:
    return sum(len(text.encode()) for text in texts.values())


def _embedding(job: _Job, model: Model, vectors: dict[bytes, Vector]) -> Embedding:
    chunks = tuple(Chunk(text.hash, vectors[text.hash], text.observation) for text in job.texts)
    return Embedding(job.entity.uid, job.entity.version, job.context.fence, model, chunks)
