"""EmbeddingJobs: rounds by hand, and what its operators know from before."""

import asyncio
from pathlib import Path

import pytest
from support_memory.conformance.given import new
from support_memory.embedding_server import EmbeddingServer, Refusal, Vectors
from support_memory.queued import MANY, Queued
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.providers.openai import OpenAIProvider
from unstuck_memory.errors import InvalidInput, NotFound
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.memory import Memory

from unstuck.protocol.leases import Share

pytestmark = pytest.mark.anyio


@pytest.mark.accepts("EMB-158")
async def test_it_is_built_of_a_graph_a_provider_and_a_store_and_runs_so_many_jobs_each_round(
    file_graph: SqliteGraph, hosted: OpenAIProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDDING_RATE_LIMIT_TOKENS", "1000")
    async with EmbeddingJobs(file_graph, hosted, f"sqlite:///{tmp_path}/jobs.db") as jobs:
        memory = Memory(file_graph, "default", jobs)
        await memory.create_entities([new(f"e{number}") for number in range(25)])
        ran = []
        for _ in range(4):
            ran.append(await jobs.process_jobs(10))
            await asyncio.sleep(0)  # ten seconds, elsewhere
        assert ran == [10, 10, 5, 0]
        assert (await jobs.get_queue_status())["completed"] == 25
        assert (await memory.coverage()).embedded == 25
        await memory.create_entities([new("one more")])
        assert await jobs.process_jobs() == 1


async def test_operators_release_recover_retry_and_clean_up(queued: Queued, server: EmbeddingServer) -> None:
    jobs, store = queued.queue, await queued.queue.app.store()
    await queued.create("Ann", "Bob", "Cyd")
    share = {"embedding": Share(300.0, 3)}
    leased = await store.lease(share, 3, "w")
    assert await jobs.get_queue_status() == {"pending": 0, "processing": 3, "completed": 0, "failed": 0}
    assert await jobs.release_jobs([leased[0].id, leased[1].id], "another") == 0
    assert await jobs.release_jobs([leased[0].id, leased[1].id], "w") == 2
    assert await jobs.release_jobs([], "w") == 0

    await queued.harness.age(400)
    assert await jobs.recover_stale_jobs() == 1
    assert (await jobs.get_queue_status())["pending"] == 3

    server.always(Refusal(400))
    await jobs.process_jobs(10)
    assert await jobs.count_dead_letters() == 3
    server.always(Vectors())
    assert await jobs.retry_failed_jobs() == 3
    await jobs.process_jobs(10)
    assert (await jobs.get_queue_status())["completed"] == 3

    assert await jobs.cleanup_jobs() == 0
    await queued.harness.age(8 * 86400)
    assert await jobs.cleanup_jobs(7) == 3


async def test_health_is_that_of_the_rounds_that_were_run_here(
    queued: Queued, server: EmbeddingServer
) -> None:
    assert (await queued.queue.get_health_status()).status == "HEALTHY"
    server.always(Refusal(400))
    for number in range(5):
        assert (await queued.queue.get_health_status()).status == "HEALTHY"
        await queued.create(f"e{number}")
        await queued.queue.process_jobs(10)
    health = await queued.queue.get_health_status()
    assert (health.status, health.consecutive_failures, health.success_rate) == ("DEGRADED", 5, 0.0)
    assert health.patterns == {"http_400": 5}
    server.always(Vectors())
    await queued.create("good")
    await queued.queue.process_jobs(10)
    health = await queued.queue.get_health_status()
    assert (health.status, health.consecutive_failures) == ("HEALTHY", 0)
    assert health.last_success is not None


async def test_an_entity_that_is_not_there_gets_no_job(queued: Queued) -> None:
    with pytest.raises(NotFound, match="has no entity 'Ann'"):
        await queued.queue.schedule_entity_embedding("default", "Ann")
    assert await queued.queue.schedule([]) == []


async def test_an_entity_that_gets_its_job_by_name_is_found_as_everywhere_else(queued: Queued) -> None:
    await queued.create("Zo\u00eb")
    [job] = (await queued.jobs()).values()
    assert (await queued.queue.schedule_entity_embedding(" default", " Zoe\u0308 ")).id == job.id
    for bad in ("", "a" * 201, "a\0b", "a\ud800"):
        with pytest.raises(InvalidInput, match=r"^name .* 1 to 200 .*; "):
            await queued.queue.schedule_entity_embedding("default", bad)


@pytest.mark.long
@pytest.mark.accepts("EMB-158")
async def test_a_round_each_ten_seconds_is_all_that_a_program_needs(
    file_graph: SqliteGraph, hosted: OpenAIProvider, tmp_path: Path
) -> None:
    async with EmbeddingJobs(file_graph, hosted, f"sqlite:///{tmp_path}/jobs.db", MANY) as jobs:
        memory = Memory(file_graph, "default", jobs)
        await memory.create_entities([new(f"e{number}") for number in range(25)])
        ran = []
        for number in range(5):
            ran.append(await jobs.process_jobs(10))
            await asyncio.sleep(10)
            await memory.create_entities([new(f"later {number}")])
        assert ran == [10, 10, 7, 1, 1]
        assert (await jobs.get_queue_status())["completed"] == 29
