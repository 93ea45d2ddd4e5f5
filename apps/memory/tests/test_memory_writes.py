"""Creating entities is local work of milliseconds: no provider, no waiting for a worker, and a job for each version."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from support_memory.conformance.given import more, new
from support_memory.jobs import Untouchable, Watched
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.graphs.sqlite.threads import Threads
from unstuck_memory.memory import Memory

from unstuck import Filter

pytestmark = pytest.mark.anyio
Queued = Callable[[Provider], tuple[Memory, EmbeddingJobs]]


@pytest.fixture
async def queued(
    file_graph: SqliteGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Queued]:
    """A memory whose jobs are in a database of their own. No worker runs unless the test has it run."""
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    opened: list[EmbeddingJobs] = []

    def with_provider(provider: Provider) -> tuple[Memory, EmbeddingJobs]:
        opened.append(EmbeddingJobs(file_graph, provider, f"sqlite:///{tmp_path / 'jobs.db'}"))
        return Memory(file_graph, "default", opened[0]), opened[0]

    yield with_provider
    for jobs in opened:
        await jobs.__aexit__(None, None, None)


def waited() -> float:
    """The seconds that this thread could have run, but others had the processors."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that each writing transaction takes, from asking for the lock to the commit."""
    taken: list[float] = []
    write: Callable[..., Any] = Threads._write

    def timed(self: Threads, step: Any) -> Any:
        began = time.perf_counter() - waited()
        try:
            return write(self, step)
        finally:
            taken.append(time.perf_counter() - waited() - began)

    monkeypatch.setattr(Threads, "_write", timed)
    return taken


def tables(path: Path) -> set[str]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    finally:
        connection.close()


@pytest.mark.accepts("EMB-040", "EMB-042", "EMB-044")
async def test_creating_persists_entities_without_embedding_and_calls_no_provider(queued: Queued) -> None:
    memory, jobs = queued(Untouchable())
    await memory.create_entities([new("Ann", "tall"), new("Bob")])
    await memory.create_entities([new("Ann", "kind")])

    assert [one.observations for one in (await memory.read_graph()).entities] == [("tall", "kind"), ()]
    assert await memory.get_entity_embedding("Ann") is None
    coverage = await memory.coverage()
    assert (coverage.entities, coverage.embedded) == (2, 0)
    assert (await jobs.get_queue_status())["pending"] == 3


@pytest.mark.accepts("EMB-043", "EMB-050", "EMB-053")
async def test_fifty_creates_of_fifty_entities_at_once_hold_the_lock_for_milliseconds_each(
    queued: Queued, transactions: list[float]
) -> None:
    """Measured up to three times: a disk that stands still for a moment is not the graph's doing."""
    memory, jobs = queued(Untouchable())
    for attempt in range(1, 4):
        transactions.clear()
        written = await asyncio.gather(*(
            memory.create_entities([new(f"{attempt} {call} {number}", f"is {number}") for number in range(50)])
            for call in range(50)
        ))  # fmt: skip

        assert all(
            answer.scheduled and all(change.created for change in answer.changes) for answer in written
        )
        assert len(transactions) == 50
        assert (await jobs.get_queue_status())["pending"] == 2500 * attempt
        if max(transactions) < 0.1:
            break
    assert max(transactions) < 0.1


@pytest.mark.accepts("EMB-046", "EMB-047", "EMB-054")
async def test_each_version_has_exactly_one_job_and_it_is_in_the_queues_own_database(
    queued: Queued, tmp_path: Path
) -> None:
    memory, jobs = queued(Untouchable())
    written = await memory.create_entities([new(f"{number}", "a") for number in range(60)])
    await memory.create_entities([new("7", "a"), new("7", "b"), new("7", "c")])
    await memory.create_entities([new("7", "a"), new("8", "a")])

    found = (await (await jobs.app.jobs()).find(Filter(), limit=100)).jobs
    expected = {f"{entity.uid} {entity.version} twelve" for entity in written.entities}
    changed = await memory.get_entity("7")
    assert changed is not None
    assert sorted(job.key or "" for job in found) == sorted(expected | {f"{changed.uid} 2 twelve"})
    assert "job" in tables(tmp_path / "jobs.db")
    assert not tables(tmp_path / "graph.db") & tables(tmp_path / "jobs.db") - {"sqlite_sequence"}


@pytest.mark.accepts("EMB-045", "EMB-048", "EMB-052")
async def test_creates_wait_for_no_worker_and_for_no_provider(
    queued: Queued, transactions: list[float]
) -> None:
    provider = Watched()
    memory, jobs = queued(provider)
    await memory.create_entities([new("Ann", "tall")])
    provider.pause = asyncio.Event()
    worker = asyncio.create_task(jobs.process_jobs(1))
    await provider.asked.wait()

    transactions.clear()
    await asyncio.gather(*(memory.create_entities([new(f"{call}", "x")]) for call in range(20)))
    await memory.add_observations([more("Ann", "kind")])
    assert len(transactions) == 21
    assert not worker.done(), "the provider has not answered yet"

    provider.pause.set()
    assert await worker == 1
    assert await memory.get_entity_embedding("Ann") is None, "what came back is of a version that has passed"


@pytest.mark.accepts("EMB-051", "EMB-056")
async def test_the_lock_is_held_for_milliseconds_also_while_a_worker_embeds(
    queued: Queued, transactions: list[float]
) -> None:
    provider = Watched()
    memory, jobs = queued(provider)
    await memory.create_entities([new(f"first {number}", "x") for number in range(100)])
    assert not provider.asked.is_set(), "creating embeds nothing by itself"

    worker = asyncio.create_task(jobs.process_jobs(100))
    await provider.asked.wait()
    await asyncio.gather(
        *(memory.create_entities([new(f"{call} {at}") for at in range(20)]) for call in range(20))
    )
    assert await worker == 100
    assert len(transactions) > 1 + 20 + 1, "the worker makes the model known, and stores what it embedded"
    assert max(transactions) < 0.1


@pytest.mark.accepts("EMB-041", "EMB-049", "EMB-055")
async def test_a_worker_completes_the_jobs_and_each_text_is_embedded_exactly_once(queued: Queued) -> None:
    provider = Watched()
    memory, jobs = queued(provider)
    await memory.create_entities([new("Ann", "tall"), new("Bob", "loud")])
    assert provider.texts == {}

    while (await memory.coverage()).embedded < 2:
        await jobs.process_jobs(10)
    embedding = await memory.get_entity_embedding("Ann")
    assert embedding is not None
    assert [chunk.observation for chunk in embedding.chunks] == [None, 0]
    assert dict(provider.texts) == {
        "Ann (thing)\ntall": 1,
        "Ann: tall": 1,
        "Bob (thing)\nloud": 1,
        "Bob: loud": 1,
    }

    await memory.create_entities([new("Ann", "tall"), new("Bob", "late")])
    while (await memory.coverage()).embedded < 2:
        await jobs.process_jobs(10)
    assert provider.texts["Bob: late"] == 1
    assert set(provider.texts.values()) == {1}
    assert await memory.get_entities_without_embeddings() == []
