"""Real workers in processes of their own, and writers and workers that are killed at the worst moment."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.folders import ROOT
from support.neo4j import GRAPH, Neo4j
from support.processes import Child
from support.waiting import until, until_async
from support_memory.embedding_server import EmbeddingServer, Stall, Vectors
from support_memory.places import Place
from support_memory.queued import Queued
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.embeddings.providers.openai import OpenAIProvider
from unstuck_memory.embeddings.texts import texts_of
from unstuck_memory.graphs.sqlite import SqliteGraph

pytestmark = pytest.mark.anyio
PATIENCE = 120.0
WRITER = [sys.executable, "-m", "support_memory.programs.dying_writer"]
WORKER = [sys.executable, "-m", "unstuck", "worker", "unstuck_memory.worker:app", "--processes", "0"]

Start = Callable[..., Child]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a memory keeps its files, if ``tmp_path`` is the folder for data."""
    folder = tmp_path / "unstuck-memory"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a program with the folder as its home."""
    with ExitStack() as children:
        number = iter(range(100))

        def started(*argv: str, **environ: str) -> Child:
            env = {
                "XDG_DATA_HOME": str(tmp_path),
                "PYTHONPATH": str(ROOT / "apps/memory"),
                "UNSTUCK_MEMORY_EMBEDDINGS": "mock",
                "EMBEDDING_RATE_LIMIT_TOKENS": "1000",
            }
            log = tmp_path / f"process-{next(number)}.log"
            return children.enter_context(Child(argv, log, env=env | environ, cwd=tmp_path))

        yield started


@pytest.fixture
async def graph(folder: Path) -> AsyncIterator[SqliteGraph]:
    async with SqliteGraph(folder / "graph.db") as graph:
        await graph.migrate()
        yield graph


def in_file(folder: Path) -> Place:
    return Place((str(folder / "graph.db"),))


async def all_embedded(queued: Queued, child: Child, count: int) -> None:
    """Wait until all entities have their vectors: each one set, of its own texts."""

    async def covered() -> bool:
        coverage = await queued.memory.coverage()
        assert coverage.entities == count
        return coverage.embedded == count

    await until_async(covered, PATIENCE, "all vectors", child.log)
    model = await queued.queue.provider.model()
    entities = await queued.graph.list_entities("default", 1000)
    for entity in entities:
        embedding = await queued.graph.embedding_of(entity.uid, model)
        assert embedding is not None
        texts = texts_of(entity, queued.queue.provider)
        assert sorted(chunk.hash for chunk in embedding.chunks) == sorted(text.hash for text in texts)

    async def finished() -> bool:
        status = await queued.queue.get_queue_status()
        return status == {"pending": 0, "processing": 0, "completed": count, "failed": 0}

    await until_async(finished, PATIENCE, "the end of all jobs", child.log)


async def test_writers_that_die_before_they_reach_the_queue_cost_no_vector(
    graph: SqliteGraph, folder: Path, start: Start
) -> None:
    writers = start(*WRITER, str(in_file(folder)), str(folder), "0", "6")
    assert writers.wait(PATIENCE) == 0, writers.log.read_text()
    async with Queued(graph, MockProvider(), folder) as queued:
        assert (await queued.queue.get_queue_status())["pending"] <= 3
        await all_embedded(queued, start(*WORKER), 6)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["sqlite", "neo4j"])
async def test_a_hundred_dead_writers_beside_a_running_worker_cost_no_vector(
    kind: str, request: pytest.FixtureRequest, folder: Path, start: Start
) -> None:
    place, settings = in_file(folder), {}
    if kind == "neo4j":
        server: Neo4j = request.getfixturevalue("graph_at")
        place, settings = Place((server.uri, "neo4j", "", GRAPH)), {"NEO4J_URI": server.uri}
    async with place.graph() as graph:
        await graph.migrate()
        worker = start(*WORKER, **settings)
        worker.until_line("takes embedding", PATIENCE)
        writers = start(*WRITER, str(place), str(folder), "0", "100")
        assert await asyncio.to_thread(writers.wait, 4 * PATIENCE) == 0, writers.log.read_text()
        async with Queued(graph, MockProvider(), folder) as queued:
            await all_embedded(queued, worker, 100)


async def test_a_worker_that_is_killed_in_the_middle_of_a_request_costs_no_attempt_and_no_vector(
    graph: SqliteGraph, folder: Path, start: Start, server: EmbeddingServer
) -> None:
    openai = {
        "UNSTUCK_MEMORY_EMBEDDINGS": "openai",
        "OPENAI_API_KEY": "key",
        "OPENAI_BASE_URL": server.url,
        "OPENAI_EMBEDDING_MODEL": "m",
    }
    provider: Provider = OpenAIProvider("key", base_url=server.url, model="m")
    try:
        async with Queued(graph, provider, folder) as queued:
            await queued.create("Ann", "Bob", "Cyd", observations=("tall",))
            server.next(Vectors(), Stall())  # the first is asked for the dimension
            worker = start(*WORKER, **openai)
            until(lambda: len(server.requests) == 2, PATIENCE, "a request with texts", worker.log)
            assert worker.kill() == -9
            assert (await queued.queue.get_queue_status())["processing"] == 3

            again = start(*WORKER, **openai)
            await all_embedded(queued, again, 3)
            server.release()
            jobs = await queued.jobs()
            assert {(job.crashes, job.result["outcome"]) for job in jobs.values()} == {(1, "embedded")}
            again.terminate()
            assert again.wait(PATIENCE) == 0
    finally:
        await provider.aclose()


async def test_a_worker_that_is_stopped_gives_back_what_it_was_waiting_for(
    graph: SqliteGraph, folder: Path, start: Start, server: EmbeddingServer
) -> None:
    provider = OpenAIProvider("key", base_url=server.url, model="m")
    try:
        async with Queued(graph, provider, folder) as queued:
            await queued.create("Ann", "Bob")
            server.next(Vectors(), Stall())
            worker = start(
                *WORKER,
                "--grace",
                "0",
                UNSTUCK_MEMORY_EMBEDDINGS="openai",
                OPENAI_API_KEY="key",
                OPENAI_BASE_URL=server.url,
                OPENAI_EMBEDDING_MODEL="m",
            )
            until(lambda: len(server.requests) == 2, PATIENCE, "a request with texts", worker.log)
            worker.terminate()
            assert worker.wait(PATIENCE) == 0
            jobs = await queued.jobs()
            assert {(str(job.status), job.attempts) for job in jobs.values()} == {("pending", 0)}
    finally:
        await provider.aclose()


def test_a_worker_without_days_of_retention_reports_it_in_one_line(
    folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EMBED_JOB_RETENTION_DAYS")
    worker = start(*WORKER)
    assert worker.wait(PATIENCE) == 2
    assert worker.says("EMBED_JOB_RETENTION_DAYS is not set: .* 7 to 30")
