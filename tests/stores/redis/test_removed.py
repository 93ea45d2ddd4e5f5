"""Jobs that Node removes: what is left of them is the reaper's to clear, and no reason for an alarm before it does."""

from collections.abc import AsyncIterator

import pytest
from support.bull import QUEUE, Bull, ours
from support.redis import Redis
from support.work import burst

from unstuck import Filter, Permanent, Unstuck
from unstuck.operations.verify import broken_rules
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import failed
from unstuck.recovery.reaper import Reaper
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import trouble

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


async def leave_events(harness: RedisHarness) -> list[str]:
    """Jobs of ours that failed: each has events. Answers their ids."""
    await harness.store.enqueue([ours("first"), ours("second"), ours("third")])
    jobs = await harness.store.lease({QUEUE: Share(60.0, 3)}, 3, "w")
    await harness.store.settle([failed(job.lease, trouble()) for job in jobs])
    assert len(await harness.store.events()) >= 3
    return [job.id for job in jobs]


@pytest.mark.node("clean, obliterate and remove")
@pytest.mark.parametrize("way", ["remove", "clean", "obliterate"])
async def test_what_node_removed_is_no_alarm_and_is_cleared_by_a_reaper(
    harness: RedisHarness, bull: Bull, way: str
) -> None:
    ids = await leave_events(harness)
    await harness.store.enqueue([ours("running")])
    if way == "obliterate":  # with force, also what runs
        await harness.store.lease({QUEUE: Share(60.0, 1)}, 1, "w")
    await bull.remove(way, *ids)

    assert await broken_rules(harness.store) == []

    await Reaper(harness.store).recover()
    assert await broken_rules(harness.store) == []
    assert [event for event in await harness.store.events() if event.job in ids] == []
    left = [job.id for job in (await harness.store.find(Filter(queue=QUEUE))).jobs]
    assert left == ([] if way == "obliterate" else ["running-1"])


@pytest.mark.node("clean, obliterate and remove")
async def test_what_nodes_worker_removed_when_it_ended_is_no_alarm(harness: RedisHarness, bull: Bull) -> None:
    [id_] = await bull.add(("flaky", {}, {"attempts": 2, "removeOnComplete": True}))
    [job] = await harness.store.lease({QUEUE: Share(60.0, 1)}, 1, "w")
    async with Unstuck(harness.url) as app:
        jobs = await app.jobs()
        assert await jobs.release_jobs([id_], "w") == 1
    assert await harness.store.events(job=job.ref) != []
    await bull.work(1)

    assert await broken_rules(harness.store) == []
    await Reaper(harness.store).recover()
    assert [event for event in await harness.store.events() if event.job == id_] == []


async def test_of_a_job_that_expired_and_is_gone_a_reaper_makes_no_other(harness: RedisHarness) -> None:
    await harness.store.enqueue([ours("late", expires=60.0)])
    await Reaper(harness.store).recover()  # which searches all entries, and not again for a minute
    await harness.age(61)
    assert await harness.store.lease({QUEUE: Share(60.0, 1)}, 1, "w") == []
    await harness.client.delete(harness.base(QUEUE) + "late-1")

    await Reaper(harness.store).recover()

    assert await harness.client.exists(harness.base(QUEUE) + "late-1", harness.base(QUEUE) + "delayed") == 0
    assert [event.type for event in await harness.store.events()] == ["reaper:removed"]


async def test_events_that_nobody_would_clear_are_still_an_alarm(harness: RedisHarness) -> None:
    [id_, *_] = await leave_events(harness)
    await harness.client.delete(harness.base(QUEUE) + id_)
    await harness.client.zrem(harness.base(QUEUE) + "failed", id_)
    await harness.client.zrem(harness.base(QUEUE) + "unstuck:all", id_)

    assert {line.partition(":")[0] for line in await broken_rules(harness.store)} == {
        "events die with their job"
    }


@pytest.mark.node("flows")
@pytest.mark.parametrize(
    ("option", "note", "state"),
    [
        ("failParentOnFailure", "unsuccessful", "failed"),
        ("ignoreDependencyOnFailure", "failed", "completed"),
    ],
)
async def test_a_failed_child_that_is_retried_is_waited_for_again(
    harness: RedisHarness, bull: Bull, option: str, note: str, state: str
) -> None:
    """As BullMQ's own retry has it: the parent notes the child as unfinished; where it went already it stays."""
    parent, child = await bull.flow(("part", {option: True}))
    works = False
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def whole() -> str:
            return "done"

        @app.task(queue=QUEUE)
        async def part() -> str:
            if not works:
                raise Permanent("no")
            return "part"

        await burst(app)
        key, of = harness.base(QUEUE) + parent, harness.base(QUEUE) + child
        assert await harness.client.exists(f"{key}:{note}") == 1
        assert (await bull.look())["jobs"][parent]["state"] == state

        assert await harness.store.requeue(Filter(queue=QUEUE, ids=(child,))) == 1
        assert await harness.client.exists(f"{key}:{note}") == 0
        assert await harness.client.smembers(f"{key}:dependencies") == {of.encode()}

        works = True
        await burst(app)
        assert await harness.store.requeue(Filter(queue=QUEUE, ids=(parent,))) == 1
        await burst(app)

    states = {id_: job["state"] for id_, job in (await bull.look())["jobs"].items()}
    assert states == {parent: "completed", child: "completed"}
    assert await harness.client.hkeys(f"{key}:processed") == [of.encode()]
    assert await broken_rules(harness.store) == []
