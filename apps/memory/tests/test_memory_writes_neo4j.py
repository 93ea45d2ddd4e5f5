"""Creating entities in Neo4j, too, is local work of milliseconds: no provider, no waiting for a worker, one job for each version."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import neo4j
import pytest
from support.neo4j import GRAPH, Neo4j
from support_memory.conformance.given import more, new
from support_memory.jobs import Untouchable, Watched
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.graphs.neo4j import Neo4jGraph
from unstuck_memory.memory import Memory

from unstuck import Filter

# The first test on Neo4j waits for the server's start, too.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
Queued = Callable[[Provider], tuple[Memory, EmbeddingJobs]]
OPEN = "SHOW TRANSACTIONS YIELD currentQuery WHERE NOT currentQuery STARTS WITH 'SHOW' RETURN count(*)"


@pytest.fixture
async def queued(graph_at: Neo4j, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Queued]:
    """A memory in a database that has nothing else, whose jobs are in a file. No worker runs unless the test has it run."""
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    async with AsyncExitStack() as stack:
        graph = await stack.enter_async_context(Neo4jGraph(graph_at.uri, "neo4j", "", GRAPH))
        await graph.migrate()
        opened: list[EmbeddingJobs] = []

        def with_provider(provider: Provider) -> tuple[Memory, EmbeddingJobs]:
            jobs = EmbeddingJobs(graph, provider, f"sqlite:///{tmp_path / 'jobs.db'}")
            opened.append(jobs)
            return Memory(graph, "default", jobs), jobs

        yield with_provider
        for jobs in opened:
            await jobs.__aexit__(None, None, None)


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that each transaction takes, from before it begins until its commit is answered."""
    taken: list[float] = []
    began: dict[int, float] = {}
    begin: Any = neo4j.AsyncSession.begin_transaction
    commit: Any = neo4j.AsyncTransaction.commit

    async def timed_begin(self: neo4j.AsyncSession, *args: Any, **facts: Any) -> neo4j.AsyncTransaction:
        now = time.perf_counter()
        tx: neo4j.AsyncTransaction = await begin(self, *args, **facts)
        began[id(tx)] = now
        return tx

    async def timed_commit(self: neo4j.AsyncTransaction) -> None:
        await commit(self)
        taken.append(time.perf_counter() - began.pop(id(self)))

    monkeypatch.setattr(neo4j.AsyncSession, "begin_transaction", timed_begin)
    monkeypatch.setattr(neo4j.AsyncTransaction, "commit", timed_commit)
    return taken


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


@pytest.mark.accepts("EMB-046", "EMB-047", "EMB-054")
async def test_each_version_has_exactly_one_job_and_none_is_in_the_graphs_database(
    queued: Queued, graph_at: Neo4j
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
    labels = "MATCH (n) UNWIND labels(n) AS label RETURN DISTINCT label"
    assert not [label for (label,) in graph_at.execute(labels) if "Job" in label]


@pytest.mark.accepts("EMB-045", "EMB-048", "EMB-052")
async def test_no_transaction_is_open_while_a_provider_is_waited_for(queued: Queued, graph_at: Neo4j) -> None:
    provider = Watched()
    memory, jobs = queued(provider)
    await memory.create_entities([new("Ann", "tall")])
    provider.pause = asyncio.Event()
    worker = asyncio.create_task(jobs.process_jobs(1))
    await provider.asked.wait()

    assert await asyncio.to_thread(graph_at.execute, OPEN) == [(0,)]
    await asyncio.gather(*(memory.create_entities([new(f"{call}", "x")]) for call in range(20)))
    await memory.add_observations([more("Ann", "kind")])
    assert not worker.done(), "the provider has not answered yet"

    provider.pause.set()
    assert await worker == 1
    assert await memory.get_entity_embedding("Ann") is None, "what came back is of a version that has passed"


@pytest.mark.accepts("EMB-041", "EMB-049", "EMB-055")
async def test_a_worker_completes_the_jobs_and_each_text_is_embedded_exactly_once(queued: Queued) -> None:
    provider = Watched()
    memory, jobs = queued(provider)
    await memory.create_entities([new("Ann", "tall"), new("Bob", "loud")])
    assert provider.texts == {}

    while (await memory.coverage()).embedded < 2:
        await jobs.process_jobs(10)
    await memory.create_entities([new("Ann", "tall"), new("Bob", "late")])
    while (await memory.coverage()).embedded < 2:
        await jobs.process_jobs(10)
    assert dict(provider.texts) == dict.fromkeys(
        [
            "Ann (thing)\ntall",
            "Ann: tall",
            "Bob (thing)\nloud",
            "Bob: loud",
            "Bob (thing)\nloud\nlate",
            "Bob: late",
        ],
        1,
    )
    assert await memory.get_entities_without_embeddings() == []


@pytest.mark.long
@pytest.mark.accepts("EMB-043", "EMB-050", "EMB-051")
async def test_fifty_creates_of_fifty_entities_at_once_take_milliseconds_each(
    queued: Queued, transactions: list[float]
) -> None:
    """Measured until it is so, twenty times at most: the server compiles what it runs often, and others use its processors."""
    memory, jobs = queued(Untouchable())
    for attempt in range(1, 21):
        transactions.clear()
        written = await asyncio.gather(*(
            memory.create_entities([new(f"{attempt} {call} {number}", f"is {number}") for number in range(50)])
            for call in range(50)
        ))  # fmt: skip

        assert all(
            answer.scheduled and all(change.created for change in answer.changes) for answer in written
        )
        assert len(transactions) >= 50, "one that met another is made again"
        assert (await jobs.get_queue_status())["pending"] == 2500 * attempt
        if max(transactions) < 0.1:
            break
    assert max(transactions) < 0.1
