"""Entities without vectors get jobs again, whatever the reason is; what failed for good stays so and holds up nobody."""

from pathlib import Path

import pytest
from support.waiting import until_async
from support_memory.conformance.given import more, new
from support_memory.embedding_server import EmbeddingServer, Refusal, Request, Vectors
from support_memory.jobs import Recorded
from support_memory.queued import Queued
from unstuck_memory.embeddings import queue, repair
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.embeddings.providers.openai import OpenAIProvider
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.memory import Memory

pytestmark = pytest.mark.anyio


async def passes(queued: Queued) -> bool:
    """One more pass of repair, a minute later."""
    return await queued.queue._repair.once()


async def covered(queued: Queued) -> tuple[int, int]:
    coverage = await queued.memory.coverage()
    return coverage.entities, coverage.embedded


async def unscheduled(queued: Queued, *names: str) -> None:
    """Entities whose writer died before it reached the queue."""
    await Memory(queued.graph, "default", Recorded()).create_entities([new(name) for name in names])


async def test_what_has_no_job_gets_one_also_if_a_page_is_not_enough(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "PAGE", 3)
    await unscheduled(queued, *(f"e{number}" for number in range(10)))
    await queued.create("has a job")
    assert await passes(queued)
    assert await queued.queue.get_queue_status() == {
        "pending": 11,
        "processing": 0,
        "completed": 0,
        "failed": 0,
    }
    await queued.queue.process_jobs(20)
    assert await covered(queued) == (11, 11)


async def test_what_was_written_just_now_goes_before_what_repair_adds(queued: Queued) -> None:
    await unscheduled(queued, "old one", "old two")
    await passes(queued)
    await queued.create("new")
    assert await queued.queue.process_jobs(1) == 1
    assert await queued.states() == {"new": "completed", "old one": "pending", "old two": "pending"}


async def test_a_wiped_queue_is_filled_again(
    queued: Queued, file_graph: SqliteGraph, hosted: OpenAIProvider, tmp_path: Path
) -> None:
    await queued.create("done")
    await queued.queue.process_jobs(10)
    await queued.create("waits", "waits too")
    await queued.queue.__aexit__(None, None, None)
    for file in tmp_path.glob("jobs.db*"):
        file.unlink()
    async with Queued(file_graph, hosted, tmp_path) as again:
        assert await again.queue.process_jobs(10) == 2  # a worker's first round begins with a pass
        assert await covered(again) == (3, 3)
        assert set(await again.states()) == {"waits", "waits too"}


async def test_another_model_embeds_everything_and_the_first_ones_vectors_stay(
    queued: Queued, file_graph: SqliteGraph, tmp_path: Path
) -> None:
    await queued.create("Ann", "Bob")
    await queued.queue.process_jobs(10)
    async with Queued(file_graph, MockProvider(), tmp_path) as other:
        assert await covered(other) == (2, 0)
        assert await other.queue.process_jobs(10) == 2
        assert await covered(other) == (2, 2)
    assert await covered(queued) == (2, 2)
    assert await passes(queued)
    assert await queued.queue.process_jobs(10) == 0


async def test_a_name_behind_which_is_a_model_of_another_dimension_has_everything_embedded_again(
    queued: Queued, file_graph: SqliteGraph, tmp_path: Path
) -> None:
    await queued.create("Ann", "Bob")
    await queued.queue.process_jobs(10)
    with EmbeddingServer(dimension=16) as wider:
        provider = OpenAIProvider("key", base_url=wider.url, model="m")
        async with Queued(file_graph, provider, tmp_path) as other:
            assert await covered(other) == (2, 0)
            assert await other.queue.process_jobs(10) == 2
            assert await covered(other) == (2, 2)
        await provider.aclose()
    assert await covered(queued) == (2, 2)


async def test_a_completed_job_whose_vectors_are_gone_is_started_over(
    queued: Queued, server: EmbeddingServer, tmp_path: Path
) -> None:
    """As after a graph was restored from an archive, which has no vectors."""
    await queued.create("Ann", "Bob")
    await queued.queue.process_jobs(10)
    records = [record async for record in queued.graph.export("default")]
    server.requests.clear()

    async with SqliteGraph(tmp_path / "restored.db") as restored:
        await restored.migrate()
        await restored.restore("default", records)
        async with Queued(restored, queued.queue.provider, tmp_path) as after:
            assert await after.queue.process_jobs(10) == 2
            assert await covered(after) == (2, 2)
            assert len(server.requests) == 1
            assert await passes(after)
            assert await after.queue.process_jobs(10) == 0


async def test_dead_letters_stay_dead_and_hold_up_nobody_behind_them(
    queued: Queued, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "PAGE", 2)

    def refuse(request: Request) -> Refusal | Vectors:
        return Refusal(400) if any("bad" in text for text in request.texts) else Vectors()

    server.always(refuse)
    await queued.create(*(f"bad {number}" for number in range(5)))
    await queued.queue.process_jobs(10)
    await queued.create("waits")
    await unscheduled(queued, "good", "better")
    assert await passes(queued)
    assert await queued.queue.process_jobs(10) == 3
    assert await covered(queued) == (8, 3)
    assert await queued.queue.count_dead_letters() == 5
    assert await passes(queued)
    assert await queued.queue.process_jobs(10) == 0

    server.always(Vectors())
    assert await queued.queue.retry_failed_jobs() == 5
    await queued.queue.process_jobs(10)
    assert await covered(queued) == (8, 8)


async def test_a_pass_stops_while_the_queue_is_full_and_goes_on_where_it_stopped(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "PAGE", 2)
    monkeypatch.setattr(queue, "FULL", 4)
    await unscheduled(queued, *(f"e{number}" for number in range(9)))
    assert not await passes(queued)
    first = await queued.jobs()
    assert len(first) == 4
    assert not await passes(queued)
    assert await queued.jobs() == first

    await queued.queue.process_jobs(4)
    assert not await passes(queued)
    assert len(await queued.jobs()) == 8
    await queued.queue.process_jobs(4)
    assert await passes(queued)
    await queued.queue.process_jobs(4)
    assert await covered(queued) == (9, 9)


async def test_each_pass_begins_with_those_that_have_waited_longest(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "PAGE", 2)
    await unscheduled(queued, *(f"e{number}" for number in range(5)))
    assert await passes(queued)
    queued.harness.rows("DELETE FROM job")
    assert await passes(queued)
    assert len(await queued.jobs()) == 5


async def test_a_version_whose_job_failed_does_not_hold_back_the_next_version(
    queued: Queued, server: EmbeddingServer
) -> None:
    server.next(Refusal(400))
    await queued.create("Ann")
    await queued.queue.process_jobs(10)
    await Memory(queued.graph, "default", Recorded()).add_observations([more("Ann", "better")])
    assert await passes(queued)
    await queued.queue.process_jobs(10)
    assert {version: str(job.status) for (_, version), job in (await queued.jobs()).items()} == {
        1: "failed",
        2: "completed",
    }


async def test_a_pass_that_fails_is_logged_and_made_again(
    queued: Queued, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(repair, "EVERY", 0.05)
    await unscheduled(queued, "Ann")
    answers = iter([OSError("the graph is away"), None])
    once = queued.queue._repair.once

    async def sometimes() -> bool:
        if error := next(answers, None):
            raise error
        return await once()

    monkeypatch.setattr(queued.queue._repair, "once", sometimes)

    async def scheduled() -> bool:
        return (await queued.queue.get_queue_status())["pending"] == 1

    async with queued.queue.repairing():
        await until_async(scheduled, 30, "the job of an entity that had none")
    assert "the graph is away" in caplog.text
