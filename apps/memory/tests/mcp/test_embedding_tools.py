"""Tools about embeddings: what is forced, what failed, and how the memory does."""

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from mcp import Client
from numpy.typing import NDArray
from support_memory.tool_calls import failed, good, text_of
from unstuck_memory.mcp.served import Served
from unstuck_memory.memory import Memory
from unstuck_memory.values import Entity, NewEntity

from unstuck import Filter, Permanent, Transient

pytestmark = pytest.mark.anyio


def people(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "entityType": "person", "observations": [f"{name} is tall"]} for name in names]


@pytest.fixture
def asked(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What the tools asked of the memory, in order. The whole graph may not be asked for."""
    calls: list[tuple[str, Any]] = []
    get_entity, missing = Memory.get_entity, Memory.get_entities_without_embeddings

    async def one(self: Memory, name: str) -> Entity | None:
        calls.append(("get_entity", name))
        return await get_entity(self, name)

    async def without(self: Memory, limit: int = 10) -> list[Entity]:
        found = await missing(self, limit)
        calls.append(("get_entities_without_embeddings", limit))
        assert len(found) <= limit
        return found

    async def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("more was read than was asked for")

    monkeypatch.setattr(Memory, "get_entity", one)
    monkeypatch.setattr(Memory, "get_entities_without_embeddings", without)
    monkeypatch.setattr(Memory, "open_nodes", never)
    monkeypatch.setattr(Memory, "read_graph", never)
    return calls


async def queued(served: Served) -> list[str]:
    """The states of all jobs."""
    store = await served.jobs.app.jobs()
    return [str(job.status) for job in (await store.find(Filter(), 1000)).jobs]


async def without_jobs(served: Served) -> None:
    """Forget the queue, as if it was lost."""
    store = await served.jobs.app.jobs()
    await store.cancel_matching(Filter())
    while await queued(served):  # what ended in this very millisecond is not older than 0 days yet
        await store.cleanup_jobs(0)


@pytest.mark.accepts("EMB-120", "EMB-121", "EMB-122")
@pytest.mark.parametrize("state", ["lost", "pending", "completed", "failed"])
async def test_a_named_entity_gets_exactly_one_job_whatever_it_had(
    client: Client, served: Served, asked: list[tuple[str, Any]], state: str
) -> None:
    await good(client, "create_entities", entities=people("Ann"))
    if state == "lost":
        await without_jobs(served)
    elif state == "completed":
        await served.jobs.process_jobs(10)
    elif state == "failed":
        await (await served.jobs.app.jobs()).cancel_matching(Filter())
    asked.clear()

    data = await good(client, "force_generate_embedding", entity_name="Ann")
    assert asked == [("get_entity", "Ann")]
    assert await queued(served) == ["pending"]
    assert data["jobs"][0]["status"] == ("already queued" if state == "pending" else "scheduled")
    await served.jobs.process_jobs(10)
    assert await queued(served) == ["completed"]
    assert (await served.memory.coverage()).embedded == 1


@pytest.mark.accepts("EMB-123", "EMB-130", "EMB-131")
@pytest.mark.parametrize("limit", [None, 20, 0, -3, 10**9])
async def test_with_a_name_the_limit_is_ignored_and_the_answer_names_the_entity(
    client: Client, served: Served, asked: list[tuple[str, Any]], limit: int | None
) -> None:
    await good(client, "create_entities", entities=people("Ann", "Bob", "Cid"))
    await without_jobs(served)
    result = await client.call_tool("force_generate_embedding", {"entity_name": " Ann ", "limit": limit})
    data = result.structured_content
    assert not result.is_error
    assert (data["success"], data["mode"], data["entity"]) == (True, "specific", "Ann")
    assert "Ann" in text_of(result)
    assert await queued(served) == ["pending"]


async def test_an_unknown_name_is_a_failure_and_queues_nothing(client: Client, served: Served) -> None:
    assert "there is no entity 'Zoe'" in await failed(client, "force_generate_embedding", entity_name="Zoe")
    assert await queued(served) == []


@pytest.mark.accepts("EMB-124", "EMB-132", "EMB-133")
async def test_without_a_name_the_limit_goes_to_the_bounded_discovery(
    client: Client, served: Served, asked: list[tuple[str, Any]]
) -> None:
    await good(client, "create_entities", entities=people(*(f"Ann {number:02}" for number in range(30))))
    await without_jobs(served)
    asked.clear()
    data = await good(client, "force_generate_embedding", limit=20)
    assert asked == [("get_entities_without_embeddings", 20)]
    assert (data["mode"], data["discovered"], data["queued"]) == ("batch", 20, 20)
    assert await queued(served) == ["pending"] * 20
    for limit in (0, 1_001):
        line = await failed(client, "force_generate_embedding", limit=limit)
        assert "a whole number from 1 to 1000" in line


@pytest.mark.accepts("EMB-125", "EMB-126")
async def test_the_numbers_of_a_batch_are_true(client: Client, served: Served) -> None:
    await good(client, "create_entities", entities=people("Ann", "Bob", "Cid", "Dan", "Eve"))
    await served.jobs.process_jobs(1)  # one is embedded
    store = await served.jobs.app.jobs()
    waiting = (await store.find(Filter(status="pending"), 10)).jobs  # type: ignore[arg-type]
    await store.cancel([job.id for job in waiting[:2]])  # two have failed, two wait

    data = await good(client, "force_generate_embedding")
    assert (data["discovered"], data["queued"], data["newly_scheduled"], data["failed"]) == (4, 4, 2, 0)
    assert sorted(job["status"] for job in data["jobs"]) == ["already queued"] * 2 + ["scheduled"] * 2
    assert sorted(await queued(served)) == ["completed"] + ["pending"] * 4
    await served.jobs.process_jobs(10)
    result = await client.call_tool("force_generate_embedding", {})
    assert result.structured_content["discovered"] == 0
    assert "discovered 0" in text_of(result)


@pytest.mark.accepts("EMB-128", "EMB-129")
@pytest.mark.parametrize("arguments", [{}, {"entity_name": "  "}, {"entity_name": None, "limit": None}])
async def test_without_both_arguments_ten_entities_are_handled(
    client: Client, served: Served, asked: list[tuple[str, Any]], arguments: dict[str, Any]
) -> None:
    await good(client, "create_entities", entities=people(*(f"Ann {number:02}" for number in range(12))))
    await without_jobs(served)
    asked.clear()
    data = await good(client, "force_generate_embedding", **arguments)
    assert asked == [("get_entities_without_embeddings", 10)]
    assert (data["limit"], data["discovered"], len(await queued(served))) == (10, 10, 10)


@pytest.mark.accepts("EMB-127", "EMB-134", "EMB-135")
async def test_a_batch_reads_no_more_of_the_graph_than_its_limit(
    client: Client, served: Served, asked: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await good(client, "create_entities", entities=people(*(f"Ann {number:03}" for number in range(200))))
    read: list[int] = []
    for name in ("get_entities", "get_by_uid", "list_entities", "entity_history", "without_embeddings"):
        method = getattr(served.graph, name)

        async def counted(*arguments: Any, _method: Any = method, **named: Any) -> Any:
            found = await _method(*arguments, **named)
            read.append(len(found))
            return found

        monkeypatch.setattr(served.graph, name, counted)
    await good(client, "force_generate_embedding", limit=3)
    assert sum(read) == 3


@pytest.mark.accepts("EMB-136")
async def test_the_memory_of_a_batch_grows_with_its_limit_and_not_with_the_graph(
    client: Client, served: Served
) -> None:
    async def peak() -> int:
        tracemalloc.start()
        await good(client, "force_generate_embedding", limit=5)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    long = [
        {"name": f"Ann {number:04}", "entityType": "person", "observations": ["x" * 5_000]}
        for number in range(400)
    ]
    await good(client, "create_entities", entities=long[:10])
    await peak()  # what is made once
    before = await peak()
    await good(client, "create_entities", entities=long[10:])
    assert await peak() < before + 200_000  # all of it would be two million characters


@pytest.mark.accepts("EMB-056")
async def test_tools_that_create_call_no_provider(
    client: Client, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(texts: Sequence[str]) -> NDArray[np.float32]:
        raise AssertionError("a provider was called where nothing may be embedded")

    monkeypatch.setattr(served.jobs.provider, "embed", never)
    await good(client, "create_entities", entities=people("Ann", "Bob"))
    await good(client, "add_observations", observations=[{"entityName": "Ann", "contents": ["kind"]}])
    await good(client, "delete_observations", deletions=[{"entityName": "Ann", "observations": ["kind"]}])
    await good(client, "merge_entities", source="Ann", into="Bob")
    await good(client, "force_generate_embedding")
    assert "completed" not in await queued(served)
    assert (await good(client, "memory_status"))["embedded"] == 0


async def test_failures_are_listed_with_their_reason_and_retried_by_name_or_all(
    client: Client, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(texts: Sequence[str]) -> NDArray[np.float32]:
        raise Permanent("the text is\nnot for me")

    await good(client, "create_entities", entities=people("Ann", "Bob", "Cid"))
    other = Memory(served.graph, "other", served.jobs)
    await other.create_entities([NewEntity(name="Zoe", entity_type="person")])
    with monkeypatch.context() as patched:
        patched.setattr(served.jobs.provider, "embed", broken)
        while "pending" in await queued(served):
            await served.jobs.process_jobs(100)
    await good(client, "add_observations", observations=[{"entityName": "Cid", "contents": ["new"]}])
    await good(client, "delete_entities", entityNames=["Bob"])
    await good(client, "create_entities", entities=people("Dan"))

    data = await good(client, "list_failed_embeddings")
    assert [one["name"] for one in data["failures"]] == ["Ann"]
    assert data["failures"][0]["category"] == "PERMANENT"
    assert "the text is not for me" in data["failures"][0]["error"]
    status = await good(client, "memory_status")
    assert status["queue"]["dead"] == 4
    assert any("list_failed_embeddings" in problem for problem in status["problems"])

    assert (await good(client, "retry_failed_embeddings", names=["Dan"]))["retried"] == 0
    data = await good(client, "retry_failed_embeddings")
    assert (data["retried"], data["names"]) == (1, ["Ann"])
    await served.jobs.process_jobs(100)
    assert (await good(client, "list_failed_embeddings"))["failures"] == []
    assert (await good(client, "memory_status"))["embedded"] == 3


async def test_failures_come_page_by_page(
    client: Client, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(texts: Sequence[str]) -> NDArray[np.float32]:
        raise Permanent("no")

    names = [f"Ann {number}" for number in range(7)]
    await good(client, "create_entities", entities=people(*names))
    monkeypatch.setattr(served.jobs.provider, "embed", broken)
    while "pending" in await queued(served):
        await served.jobs.process_jobs(100)
    found: list[str] = []
    arguments: dict[str, Any] = {"limit": 3}
    while True:
        data = await good(client, "list_failed_embeddings", **arguments)
        found += [one["name"] for one in data["failures"]]
        if not data["truncated"]:
            break
        arguments["cursor"] = data["next_cursor"]
    assert sorted(found) == names


async def test_the_status_shows_what_is_missing_and_that_no_worker_is_there(
    client: Client, served: Served
) -> None:
    await good(client, "create_entities", entities=people("Ann", "Bob"))
    served.worker = "refuses to start: EMBED_JOB_RETENTION_DAYS is not set"
    result = await client.call_tool("memory_status", {})
    data = result.structured_content
    assert (data["entities"], data["embedded"], data["queue"]["pending"], data["worker_alive"]) == (
        2,
        0,
        2,
        False,
    )
    assert any("EMBED_JOB_RETENTION_DAYS is not set" in problem for problem in data["problems"])
    assert any("2 entities have no embedding" in problem for problem in data["problems"])
    assert all(f"problem: {problem}" in text_of(result) for problem in data["problems"])


async def test_the_status_of_a_provider_that_does_not_answer_is_an_answer(
    client: Client, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> Any:
        raise Transient("no route")

    await good(client, "create_entities", entities=people("Ann"))
    monkeypatch.setattr(served.jobs.provider, "model", away)
    data = await good(client, "memory_status")
    assert data["entities"] == 1
    assert "embedded" not in data
    assert any("no route" in problem for problem in data["problems"])
