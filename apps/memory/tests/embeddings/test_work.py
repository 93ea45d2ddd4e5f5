"""What a batch of embedding jobs does, and what becomes of each of its jobs."""

import asyncio
import time
from pathlib import Path

import pytest
from support.waiting import until_async
from support_memory.conformance.given import more
from support_memory.embedding_server import (
    Answer,
    Body,
    Cut,
    EmbeddingServer,
    Refusal,
    Request,
    Reset,
    Rule,
    Stall,
    Vectors,
)
from support_memory.queued import Queued
from unstuck_memory.embeddings import work
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.embeddings.providers.openai import OpenAIProvider
from unstuck_memory.errors import GraphUnavailable
from unstuck_memory.graphs.sqlite import SqliteGraph

from unstuck import Category, Filter, Worker

pytestmark = pytest.mark.anyio


def bad_text(word: str, refusal: Answer) -> Rule:
    """Answers with a refusal if any text of the request has the word."""

    def rule(request: Request) -> Answer:
        return refusal if any(word in text for text in request.texts) else Vectors()

    return rule


async def test_a_batch_is_embedded_in_one_request_of_what_has_no_vector_yet(
    queued: Queued, server: EmbeddingServer
) -> None:
    await queued.create("Ann", "Bob", observations=("tall", "kind"))
    assert await queued.queue.process_jobs(10) == 2
    assert len(server.requests) == 1
    assert len(set(server.texts)) == len(server.texts) == 6
    assert await queued.result("Ann") == {"outcome": "embedded", "chunks": 3, "requests": 1}

    await queued.memory.add_observations([more("Ann", "late")])
    await queued.queue.process_jobs(10)
    assert await queued.result("Ann", 2) == {
        "outcome": "embedded",
        "chunks": 4,
        "requests": 1,
        "cached": 2,
    }
    assert [text for text in server.requests[1].texts if "\n" not in text] == ["Ann: late"]
    coverage = await queued.memory.coverage()
    assert (coverage.entities, coverage.embedded) == (2, 2)


async def test_a_version_that_is_not_current_any_more_is_superseded_without_a_request(
    queued: Queued, server: EmbeddingServer
) -> None:
    await queued.create("changes", "goes")
    await queued.memory.add_observations([more("changes", "now")])
    [goes] = await queued.graph.get_entities("default", ["goes"])
    await queued.memory.delete_entities(["goes"])
    await queued.queue.process_jobs(10)

    jobs = await queued.jobs()
    assert jobs["changes", 1].result == {"outcome": "superseded"}
    assert jobs["gone", goes.version].result == {"outcome": "superseded"}
    assert jobs["changes", 2].result["outcome"] == "embedded"
    assert {text.partition(":")[0].partition(" ")[0] for text in server.texts} == {"changes"}


async def test_a_job_for_another_model_is_superseded(
    queued: Queued, file_graph: SqliteGraph, tmp_path: Path, server: EmbeddingServer
) -> None:
    await queued.create("Ann")
    async with Queued(file_graph, MockProvider(), tmp_path) as other:
        assert await other.queue.process_jobs(10) == 2  # the one of its own model was missing
        assert (await other.memory.coverage()).embedded == 1
    assert server.requests == []
    results = [job.result["outcome"] for job in (await (await queued.store()).find(Filter())).jobs]
    assert sorted(results) == ["embedded", "superseded"]


async def test_requests_have_256_texts_at_most_and_an_entity_with_more_needs_several(
    queued: Queued, server: EmbeddingServer
) -> None:
    await queued.create("small", "other", observations=("one", "two"))
    await queued.create("large", observations=[f"number {n}" for n in range(600)])
    await queued.queue.process_jobs(10)

    sizes = [len(request.texts) for request in server.requests]
    assert sum(sizes) == len(set(server.texts)) == 3 + 3 + 601
    assert max(sizes) <= 256
    assert len(sizes) == 4
    assert (await queued.result("large"))["requests"] == 3
    assert (await queued.memory.coverage()).embedded == 3


async def test_a_request_is_of_64_jobs_at_most(queued: Queued, server: EmbeddingServer) -> None:
    await queued.create(*(f"e{number}" for number in range(150)))
    await queued.queue.process_jobs(150)
    assert sorted(len(request.texts) for request in server.requests) == [22, 64, 64]
    assert (await queued.memory.coverage()).embedded == 150


async def test_a_request_has_no_more_bytes_than_a_provider_sends_at_once(
    queued: Queued, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "BYTES", 100)
    await queued.create("Ann", observations=["x" * 40, "y" * 40, "z" * 300])
    await queued.queue.process_jobs(10)
    assert [sum(len(text) for text in request.texts) <= 100 for request in server.requests].count(False) <= 2
    assert (await queued.result("Ann"))["requests"] == len(server.requests) >= 3


@pytest.mark.parametrize(
    "answer",
    [
        *(Refusal(429, retry_after="30"), Refusal(429, retry_after="30", code="insufficient_quota"), Refusal(500), Refusal(503)),
        *(Reset(), Cut(), Cut(breaks=False), Body(b"<html>"), Vectors(dimension=3), Vectors(first=float("nan"))),
    ],
    ids=str,
)  # fmt: skip
async def test_whatever_the_provider_does_once_costs_no_vector(
    queued: Queued, server: EmbeddingServer, answer: Answer
) -> None:
    await queued.create("Ann", "Bob", observations=("tall",))
    server.next(answer)
    for _ in range(3):
        await queued.queue.process_jobs(10)
        await queued.harness.age(60)
        await (await queued.store()).resume("embedding")  # which a used up quota pauses
    assert await queued.states() == {"Ann": "completed", "Bob": "completed"}
    assert max(job.attempts for job in (await queued.jobs()).values()) <= 2
    assert (await queued.memory.coverage()).embedded == 2
    assert await queued.queue.count_dead_letters() == 0


async def test_a_graph_that_cannot_be_reached_for_a_moment_costs_no_vector(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queued.create("Ann", "Bob")
    with monkeypatch.context() as away:

        async def unavailable(*_: object) -> None:
            raise GraphUnavailable("the graph cannot be used now")

        away.setattr(queued.graph, "store_embeddings", unavailable)
        await queued.queue.process_jobs(10)
    jobs = await queued.jobs()
    assert {str(job.status) for job in jobs.values()} == {"pending"}
    assert {job.error.category for job in jobs.values() if job.error} == {Category.TRANSIENT}
    await queued.harness.age(60)
    await queued.queue.process_jobs(10)
    assert (await queued.memory.coverage()).embedded == 2


@pytest.mark.parametrize(
    "answer", [Vectors(more=-1), Vectors(dimension=3), Vectors(first=float("nan")), Refusal(400)], ids=str
)
async def test_what_the_provider_does_wrong_for_one_entity_fails_that_job_alone(
    queued: Queued, server: EmbeddingServer, answer: Answer
) -> None:
    await queued.create("good", "bad", "fine")
    server.always(bad_text("bad", answer))
    await queued.queue.process_jobs(10)

    assert await queued.states() == {"good": "completed", "bad": "failed", "fine": "completed"}
    job = (await queued.jobs())["bad", 1]
    assert job.error is not None
    assert (job.error.category, job.attempts, job.dead) == (Category.PERMANENT, 1, True)
    assert (await queued.memory.coverage()).embedded == 2


async def test_what_was_stored_before_a_failure_is_done_and_asked_for_no_more(
    queued: Queued, server: EmbeddingServer
) -> None:
    many = [f"number {n}" for n in range(200)]
    for name in ("first", "second", "third"):  # a request each
        await queued.create(name, observations=many)
    server.next(Vectors(), Reset())
    await queued.queue.process_jobs(10)
    states = {name: (str(job.status), job.attempts) for (name, _), job in (await queued.jobs()).items()}
    assert states == {"first": ("completed", 1), "second": ("pending", 1), "third": ("pending", 1)}
    assert len(server.requests) == 2

    server.requests.clear()
    await queued.create("fourth", observations=many)
    await queued.create("fifth", "sixth", observations=many[:100])  # which are one request
    server.always(bad_text("fifth", Refusal(400)))
    await queued.queue.process_jobs(10)
    assert sum(text.startswith("fourth: ") for text in server.texts) == 200
    found = await queued.states()
    assert (found["fourth"], found["fifth"], found["sixth"]) == ("completed", "failed", "completed")


async def test_vectors_of_a_version_that_passed_while_they_were_made_are_not_kept(
    queued: Queued, server: EmbeddingServer
) -> None:
    await queued.create("Ann", "Bob")
    server.next(Stall())
    working = asyncio.create_task(queued.queue.process_jobs(10))
    await until_async(lambda: server.requests, 30, "the request")
    await queued.memory.add_observations([more("Ann", "another")])
    server.release()
    await working
    assert await queued.result("Ann", 1) == {"outcome": "superseded"}
    assert (await queued.result("Bob"))["outcome"] == "embedded"
    assert (await queued.memory.coverage()).embedded == 1


async def test_a_429_spends_no_attempt_and_all_jobs_wait_as_long_as_it_asks_for(
    queued: Queued, server: EmbeddingServer
) -> None:
    await queued.create("Ann", "Bob")
    server.next(Refusal(429, retry_after="30"))
    await queued.queue.process_jobs(10)
    assert await queued.queue.process_jobs(10) == 0
    jobs = await queued.jobs()
    assert {(str(job.status), job.attempts) for job in jobs.values()} == {("pending", 0)}
    assert all(25 < (job.run_at - job.created_at).total_seconds() < 60 for job in jobs.values())
    assert len(server.requests) == 1

    await queued.harness.age(31)
    await queued.queue.process_jobs(10)
    assert await queued.states() == {"Ann": "completed", "Bob": "completed"}


async def test_the_rate_counts_requests_and_what_has_not_begun_is_given_back(
    file_graph: SqliteGraph, hosted: OpenAIProvider, server: EmbeddingServer, tmp_path: Path
) -> None:
    environ = {"EMBEDDING_RATE_LIMIT_TOKENS": "2", "EMBEDDING_RATE_LIMIT_INTERVAL": "3600000"}
    async with Queued(file_graph, hosted, tmp_path, environ) as queued:
        many = [f"number {n}" for n in range(200)]
        for name in ("first", "second", "third"):  # a request each
            await queued.create(name, observations=many)
        began = time.monotonic()
        await queued.queue.process_jobs(10)
        assert time.monotonic() - began < 60
        jobs = await queued.jobs()
        states = {name: (str(job.status), job.attempts) for (name, _), job in jobs.items()}
        assert states == {"first": ("completed", 1), "second": ("completed", 1), "third": ("pending", 0)}
        assert len(server.requests) == 2


async def test_jobs_that_need_no_request_give_their_token_back(
    file_graph: SqliteGraph, hosted: OpenAIProvider, server: EmbeddingServer, tmp_path: Path
) -> None:
    environ = {"EMBEDDING_RATE_LIMIT_TOKENS": "2", "EMBEDDING_RATE_LIMIT_INTERVAL": "3600000"}
    async with Queued(file_graph, hosted, tmp_path, environ) as queued:
        await queued.create("Ann")
        await queued.queue.process_jobs(10)
        for _ in range(5):
            await queued.queue.schedule_entity_embedding("default", "Ann", again=True)
            assert await queued.queue.process_jobs(10) == 1
            assert await queued.result("Ann") == {"outcome": "embedded", "chunks": 1, "cached": 1}
        await queued.create("Bob")
        await queued.memory.delete_entities(["Bob"])
        await queued.queue.process_jobs(10)
        await queued.create("Cyd")
        await queued.queue.process_jobs(10)
        assert (await queued.states())["Cyd"] == "completed"
        assert len(server.requests) == 2


async def test_a_worker_that_lost_its_lease_writes_nothing_over_what_the_next_one_wrote(
    queued: Queued, server: EmbeddingServer
) -> None:
    """Its lease runs out while it waits for its provider, and the job runs elsewhere; then it has its answer, too late."""
    await queued.create("Ann", observations=("tall",))
    server.next(Stall())
    worker = Worker(queued.queue.app)
    late = asyncio.create_task(worker.process_jobs(1))
    await until_async(lambda: server.requests, 30, "the first request")
    await queued.harness.age(301)
    assert await queued.queue.process_jobs(10) == 1
    [ann] = await queued.graph.get_entities("default", ["Ann"])
    model = await queued.queue.provider.model()
    before = await queued.graph.embedding_of(ann.uid, model)
    job = (await queued.jobs())["Ann", 1]
    server.release()
    await late
    after = await queued.graph.embedding_of(ann.uid, model)
    assert before is not None
    assert after is not None
    assert before.fence == after.fence == job.fence > 1
    assert (await queued.jobs())["Ann", 1] == job
    assert (str(job.status), job.settled_fence) == ("completed", job.fence)
    health = worker.get_health_status()
    assert (health.successes, health.failures) == (0, 0), "what it did counts for nothing"
