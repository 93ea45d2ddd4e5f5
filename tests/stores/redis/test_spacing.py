"""Debounced and throttled jobs are BullMQ's deduplicated ones: its producers and ours space each other out."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.bull import QUEUE, Bull, ours
from support.redis import Redis
from support.work import burst

from unstuck import Filter, Status, Unstuck
from unstuck.operations.verify import broken_rules
from unstuck.protocol.job import Enqueued, Job, NewJob
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import completed
from unstuck.testing import RedisHarness

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests
LONG = 600.0
DEBOUNCED = {"delay": 600_000, "deduplication": {"id": "k", "ttl": 600_000, "extend": True, "replace": True}}
THROTTLED = {"deduplication": {"id": "k", "ttl": 600_000}}


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


def spaced(number: int, **facts: Any) -> NewJob:
    return NewJob(queue=QUEUE, task="send", id=f"ours-{number}", key="k", payload={"n": number}, **facts)


def debounced(number: int) -> NewJob:
    return spaced(number, debounce=LONG, delay=LONG)


async def add(harness: RedisHarness, job: NewJob) -> Enqueued:
    [answer] = await harness.store.enqueue([job])
    return answer


async def stored(harness: RedisHarness) -> list[Job]:
    return (await harness.store.find(Filter(queue=QUEUE))).jobs


async def standing(bull: Bull) -> str | None:
    """The job that stands for the key, as Node sees it."""
    found: str | None = await bull.control("getDeduplicationJobId", "k")
    return found


@pytest.mark.node("deduplication")
async def test_node_and_we_debounce_each_other_and_the_last_call_runs(
    harness: RedisHarness, bull: Bull
) -> None:
    first = await add(harness, debounced(1))
    seen = (await bull.look())["jobs"][first.id]
    assert seen["opts"]["deduplication"] == DEBOUNCED["deduplication"]
    assert (seen["state"], await standing(bull)) == ("delayed", first.id)

    [theirs] = await bull.add(("send", {"n": 2}, DEBOUNCED))
    assert theirs != first.id
    assert list((await bull.look())["jobs"]) == [theirs]

    third = await add(harness, debounced(3))
    assert (third.created, third.id, await standing(bull)) == (False, theirs, theirs)
    [job] = await stored(harness)
    assert (job.id, job.payload, job.key, job.foreign) == (theirs, {"n": 3}, "k", False)

    await harness.age(LONG + 1)
    ran: list[int] = []
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send(n: int) -> None:
            ran.append(n)

        await burst(app)
    assert ran == [3]
    assert "deduplicated" in [kind for kind, _ in (await bull.look())["events"]]
    assert await broken_rules(harness.store) == []


@pytest.mark.node("deduplication")
async def test_node_and_we_throttle_each_other_and_the_first_call_runs(
    harness: RedisHarness, bull: Bull
) -> None:
    first = await add(harness, spaced(1, throttle=LONG))
    assert await bull.add(("send", {"n": 2}, THROTTLED)) == [first.id]
    assert (await bull.look())["jobs"][first.id]["opts"]["deduplication"] == THROTTLED["deduplication"]
    await bull.work(1)
    assert await bull.add(("send", {"n": 3}, THROTTLED)) == [first.id]
    assert not (await add(harness, spaced(4, throttle=LONG))).created
    assert [(job.id, job.payload, job.status) for job in await stored(harness)] == [
        (first.id, {"n": 1}, Status.COMPLETED)
    ]

    await harness.age(LONG + 1)
    [theirs] = await bull.add(("send", {"n": 5}, THROTTLED))
    dropped = await add(harness, spaced(6, throttle=LONG))
    assert (dropped.created, dropped.id) == (False, theirs)
    await bull.work(1)
    assert (await bull.look())["counts"]["completed"] == 2


@pytest.mark.node("deduplication")
@pytest.mark.parametrize("calls", ["ours", "theirs"])
async def test_a_call_while_node_runs_the_debounced_job_is_a_job_of_its_own(
    harness: RedisHarness, bull: Bull, calls: str
) -> None:
    short = {"debounce": 0.3, "delay": 0.3}
    first = await add(harness, spaced(1, **short))
    async with bull.at_work(slow=60_000):
        while not await harness.client.llen(f"{harness.base(QUEUE)}active"):
            await asyncio.sleep(0.02)
        if calls == "ours":
            second = await add(harness, debounced(2))
            assert second.created
            last = second.id
        else:
            [last] = await bull.add(("send", {"n": 2}, DEBOUNCED))
    assert last != first.id
    payloads = {id_: job["data"] for id_, job in (await bull.look())["jobs"].items()}
    assert payloads == {first.id: {"n": 1}, last: {"n": 2}}


@pytest.mark.node("deduplication")
async def test_a_key_of_nodes_without_an_interval_lasts_until_its_job_is_finished(
    harness: RedisHarness, bull: Bull
) -> None:
    [theirs] = await bull.add(("send", {"n": 1}, {"deduplication": {"id": "k"}}))
    dropped = await add(harness, spaced(2, throttle=LONG))
    assert (dropped.created, dropped.id) == (False, theirs)
    [job] = await harness.store.lease({QUEUE: Share(60.0, 1)}, 1, "w")
    await harness.store.settle([completed(job.lease)])

    assert (await add(harness, spaced(3, throttle=LONG))).created


@pytest.mark.node("deduplication")
async def test_a_key_whose_job_was_lost_does_not_stand_for_ever(harness: RedisHarness, bull: Bull) -> None:
    [theirs] = await bull.add(("send", {"n": 1}, {"deduplication": {"id": "k"}}))
    await harness.client.delete(f"{harness.base(QUEUE)}{theirs}")

    assert (await add(harness, spaced(2, throttle=LONG))).created


@pytest.mark.node("deduplication")
async def test_what_node_kept_for_the_end_of_a_job_is_older_than_our_next_call(
    harness: RedisHarness, bull: Bull
) -> None:
    keeps = {"deduplication": {"id": "k", "keepLastIfActive": True}}
    await bull.add(("send", {"n": 1}, keeps))
    [running] = await harness.store.lease({QUEUE: Share(60.0, 1)}, 1, "w")
    await bull.add(("send", {"n": 2}, keeps))
    last = await add(harness, debounced(3))
    await harness.store.settle([completed(running.lease)])

    waiting = [job for job in await stored(harness) if job.status is Status.PENDING]
    assert [(job.id, job.payload) for job in waiting] == [(last.id, {"n": 3})]


async def test_a_job_that_came_back_from_a_worker_of_nodes_is_not_replaced(harness: RedisHarness) -> None:
    first = await add(harness, debounced(1))
    await harness.client.hset(f"{harness.base(QUEUE)}{first.id}", "ats", 1)  # all that its retry leaves of it

    assert (await add(harness, debounced(2))).created


async def test_a_job_in_line_that_is_debounced_leaves_it(harness: RedisHarness) -> None:
    await harness.store.enqueue([ours("plain")])
    first = await add(harness, spaced(1, throttle=LONG, lane="a"))
    await harness.store.enqueue([debounced(2)])

    taken = await harness.store.lease({QUEUE: Share(60.0, 5, per_lane=3)}, 5, "w")
    assert [job.task for job in taken] == ["plain"]
    assert (await stored(harness))[0].id == first.id
    assert await broken_rules(harness.store) == []


@pytest.mark.node("deduplication")
async def test_producers_of_both_sides_that_debounce_one_key_at_once_leave_one_job_that_waits(
    harness: RedisHarness, bull: Bull
) -> None:
    numbers = iter(range(100, 10_000))
    theirs = asyncio.create_task(bull.add(*[("send", {"n": n}, DEBOUNCED) for n in range(100)]))
    calls = 0
    while not theirs.done():
        await add(harness, debounced(next(numbers)))
        calls += 1
    await theirs
    assert calls > 1
    last = await add(harness, debounced(99_999))

    seen = await bull.look()
    assert seen["counts"]["delayed"] == 1
    assert {id_: job["data"] for id_, job in seen["jobs"].items()} == {last.id: {"n": 99_999}}
    assert await standing(bull) == last.id
