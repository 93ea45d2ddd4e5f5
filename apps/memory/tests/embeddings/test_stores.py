"""The jobs of embeddings in a store of any kind: the queue asks nothing of a store that only some of them can do."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.postgres import Postgres
from support.redis import Redis
from support_memory.conformance.given import more, new
from support_memory.embedding_server import EmbeddingServer, Refusal, Vectors
from support_memory.jobs import Recorded
from support_memory.queued import MANY, Patient
from unstuck_memory.embeddings.providers.openai import OpenAIProvider
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.memory import Memory

from unstuck.testing import Harness, PostgresHarness, RedisHarness, SQLiteHarness

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    server: Postgres | Redis
    harness: PostgresHarness | RedisHarness | SQLiteHarness = SQLiteHarness(tmp_path)
    if request.param == "postgres":
        server = request.getfixturevalue("pg15")
        harness = PostgresHarness(server.url())
    elif request.param == "redis":
        server = request.getfixturevalue("redis7")
        harness = RedisHarness(server.url())
    async with harness:
        yield harness


async def test_every_entity_gets_its_vectors_whatever_store_its_job_is_in(
    file_graph: SqliteGraph, hosted: OpenAIProvider, server: EmbeddingServer, harness: Harness
) -> None:
    async with Patient(file_graph, hosted, harness.url, MANY) as jobs:
        assert not any((await jobs.get_queue_status()).values())
        memory = Memory(file_graph, "default", jobs)
        server.always(lambda request: Refusal(400) if "bad" in str(request.texts) else Vectors())
        written = await memory.create_entities([new("Ann", "tall"), new("Bob"), new("bad")])
        assert written.scheduled
        await memory.add_observations([more("Ann", "late")])
        ann, bob = await file_graph.get_entities("default", ["Ann", "Bob"])
        known = [(one.id, one.created) for one in await jobs.schedule([ann, bob])]
        assert [created for _, created in known] == [False, False]
        job = await jobs.job_of(ann)
        assert job is not None
        assert (job.id, str(job.status), job.key) == (known[0][0], "pending", f"{ann.uid} 2 m")

        assert await jobs.process_jobs(10) == 4
        assert await jobs.get_queue_status() == {"pending": 0, "processing": 0, "completed": 3, "failed": 1}
        assert (await memory.coverage()).embedded == 2
        assert await jobs.count_dead_letters() == 1
        server.always(Vectors())
        assert await jobs.retry_failed_jobs() == 1
        assert await jobs.process_jobs(10) == 1

        await Memory(file_graph, "default", Recorded()).create_entities([new("Cyd")])  # its writer died
        assert await jobs._repair.once()
        assert await jobs.process_jobs(10) == 1
        again = await jobs.schedule_entity_embedding("default", "Ann", again=True)
        assert (again.id, again.created) == (job.id, True)
        assert await jobs.process_jobs(10) == 1
        coverage = await memory.coverage()
        assert (coverage.entities, coverage.embedded) == (4, 4)


async def test_a_completed_job_whose_vectors_are_gone_is_started_over_in_any_store(
    file_graph: SqliteGraph, hosted: OpenAIProvider, harness: Harness, tmp_path: Path
) -> None:
    async with Patient(file_graph, hosted, harness.url, MANY) as jobs:
        memory = Memory(file_graph, "default", jobs)
        await memory.create_entities([new("Ann"), new("Bob")])
        assert await jobs.process_jobs(10) == 2
    records = [record async for record in file_graph.export("default")]
    async with SqliteGraph(tmp_path / "restored.db") as restored:
        await restored.migrate()
        await restored.restore("default", records)
        async with Patient(restored, hosted, harness.url, MANY) as jobs:
            assert await jobs.process_jobs(10) == 2
            assert (await Memory(restored, "default", jobs).coverage()).embedded == 2
            assert await jobs._repair.once()
            assert await jobs.process_jobs(10) == 0
