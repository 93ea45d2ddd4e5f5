"""BullMQ from npm and our store on one queue: each runs what the other enqueued, and sees the same of it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.bull import QUEUE, Bull, ours
from support.bullmq_python import produce
from support.redis import Redis
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Category, Filter, Permanent, Retry, Status, Unstuck
from unstuck.operations.verify import broken_rules
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.outcome import completed, failed
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import trouble

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests
BY_NODE = "without a reason, as BullMQ and its dashboards do"


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


async def stored(harness: RedisHarness) -> dict[str, Job]:
    return {job.id: job for job in (await harness.store.find(Filter(queue=QUEUE))).jobs}


@pytest.mark.accepts("MQ-001")
@pytest.mark.node("name and data", "attempts", "backoff", "delay")
async def test_our_worker_runs_what_node_enqueued(harness: RedisHarness, bull: Bull) -> None:
    tries: list[int] = []
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send(to: str) -> str:
            return f"sent to {to}"

        @app.task(queue=QUEUE)
        async def flaky(to: str) -> int:
            tries.append(1)
            if len(tries) < 3:
                raise ConnectionError("not yet")
            return len(tries)

        @app.task(queue=QUEUE)
        async def hopeless(to: str) -> None:
            raise Permanent("no such address")

        plain, late, urgent, again, dead = await bull.add(
            ("send", {"to": "ann"}, {}),
            ("send", {"to": "bob"}, {"delay": 300}),
            ("send", {"to": "cid"}, {"priority": 3}),
            ("flaky", {"to": "dan"}, {"attempts": 3, "backoff": {"type": "exponential", "delay": 50}}),
            ("hopeless", {"to": "eve"}, {"attempts": 5}),
        )
        async with at_work(app):

            async def over() -> bool:
                jobs = await stored(harness)
                return len(jobs) == 5 and all(
                    job.status in (Status.COMPLETED, Status.FAILED) for job in jobs.values()
                )

            await until_async(over, 20, "all jobs to end")

    seen = await bull.look()
    assert seen["counts"]["completed"] == 4
    assert seen["counts"]["failed"] == 1
    values = [seen["jobs"][id_]["returnvalue"] for id_ in (plain, late, urgent, again)]
    assert values == ["sent to ann", "sent to bob", "sent to cid", 3]
    assert seen["jobs"][again]["attemptsMade"] == 3
    assert seen["jobs"][dead]["failedReason"] == "no such address"
    assert "no such address" in seen["jobs"][dead]["stacktrace"][0]
    assert [kind for kind, id_ in seen["events"] if id_ == dead] == [
        "added", "waiting", "active", "failed", "retries-exhausted",
    ]  # fmt: skip
    assert await broken_rules(harness.store) == []


@pytest.mark.node("jobId")
async def test_our_worker_runs_what_bullmqs_package_for_python_enqueued(
    harness: RedisHarness, redis7: Redis
) -> None:
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send(to: str) -> str:
            return f"sent to {to}"

        @app.task(queue=QUEUE)
        async def hopeless(to: str) -> None:
            raise ConnectionError("no such address")

        once = {"task": "send", "data": {"to": "dan"}, "opts": {"deduplication": {"id": "once"}}}
        single = [
            {"task": "send", "data": {"to": "ann"}, "opts": {}},
            {"task": "send", "data": {"to": "bob"}, "opts": {"delay": 300}},
            {"task": "send", "data": {"to": "cid"}, "opts": {"priority": 3, "jobId": "mine"}},
            once,
            once,
            {"task": "hopeless", "data": {"to": "eve"}, "opts": {"attempts": 2, "backoff": 10}},
        ]
        bulk = [{"task": "send", "data": {"to": f"{n}"}, "opts": {"attempts": 3}} for n in range(20)]
        ids = await asyncio.to_thread(produce, redis7.port, harness.prefix, QUEUE, single, bulk)
        async with at_work(app):

            async def over() -> bool:
                return sum(job.finished_at is not None for job in (await stored(harness)).values()) == 25

            await until_async(over, 20, "all jobs to end")

    jobs = await stored(harness)
    assert ids[2] == "mine"
    assert ids[3] == ids[4]
    assert [jobs[id_].result for id_ in ids[:4]] == [
        "sent to ann",
        "sent to bob",
        "sent to cid",
        "sent to dan",
    ]
    assert (jobs[ids[5]].status, jobs[ids[5]].attempts) == (Status.FAILED, 2)
    assert sum(job.max_attempts == 3 and job.status is Status.COMPLETED for job in jobs.values()) == 20
    assert await broken_rules(harness.store) == []


@pytest.mark.accepts("MQ-001")
async def test_a_worker_of_nodes_runs_what_we_enqueued(harness: RedisHarness, bull: Bull) -> None:
    await harness.store.enqueue(
        [
            ours("plain"),
            ours("late", delay=0.3),
            ours("urgent", priority=9),
            ours("flaky", max_attempts=3),
            ours("hopeless", max_attempts=2),
        ]
    )
    await Reaper(harness.store).recover()  # it follows their events from here on
    await bull.work(5)
    await Reaper(harness.store).recover()

    jobs = await stored(harness)
    assert {id_: job.status for id_, job in jobs.items()} == {
        "plain-1": Status.COMPLETED,
        "late-1": Status.COMPLETED,
        "urgent-1": Status.COMPLETED,
        "flaky-1": Status.COMPLETED,
        "hopeless-1": Status.FAILED,
    }
    assert jobs["plain-1"].result == {"by": "node", "data": {"n": 1}}
    assert (jobs["flaky-1"].attempts, jobs["hopeless-1"].attempts) == (2, 2)
    error = jobs["hopeless-1"].error
    assert error is not None
    assert error.message == "hopeless does not work"
    assert "work.mjs" in error.stack
    assert [event.type for event in await harness.store.events(job=jobs["hopeless-1"].ref)] == [
        "failed",
        "alert",
    ]
    [of] = await harness.store.count()
    assert (of.totals["completed"], of.totals["failed"]) == (4, 1)
    assert [job.id for job in (await harness.store.find(Filter(dead=True))).jobs] == ["hopeless-1"]
    assert await broken_rules(harness.store) == []


@pytest.mark.node("pause")
async def test_a_pause_holds_on_both_sides(harness: RedisHarness, bull: Bull) -> None:
    await harness.store.enqueue([ours("plain")])
    await bull.control("pause")
    assert await harness.store.lease({QUEUE: Share(60.0, 1)}, 1, "w") == []
    assert (await harness.store.count())[0].paused == BY_NODE
    await bull.control("resume")
    assert len(await harness.store.lease({QUEUE: Share(60.0, 1)}, 1, "w")) == 1

    await harness.store.pause(QUEUE, "for a while")
    assert (await bull.look())["paused"] is True
    assert await harness.store.pause(QUEUE, None)
    assert (await bull.look())["paused"] is False


@pytest.mark.node("pause")
async def test_a_halt_holds_on_both_sides_until_either_resumes(harness: RedisHarness, bull: Bull) -> None:
    store = harness.store
    await store.enqueue([ours(f"plain-{n}") for n in range(3)])
    first, second = await store.lease({QUEUE: Share(60.0, 2)}, 2, "w")
    await store.settle([failed(first.lease, trouble(Category.CRITICAL), halt="CRITICAL: broken")])
    assert (await bull.look())["paused"] is True

    await bull.control("resume")
    assert await stopped(store) == (None, None)
    await store.reclaim(Recovery("w", 60.0, 1, queues=[QUEUE]))  # which a worker does all the time
    await bull.control("pause")
    assert await stopped(store) == (BY_NODE, None)

    await store.settle([failed(second.lease, trouble(Category.CRITICAL), halt="CRITICAL: broken")])
    assert await stopped(store) == (BY_NODE, "CRITICAL: broken")
    assert await store.pause(QUEUE, None)
    assert (await bull.look())["paused"] is False


async def stopped(store: Store) -> tuple[str | None, str | None]:
    [of] = await store.count()
    return of.paused, of.halted


@pytest.mark.node("global concurrency and rate")
async def test_limits_that_node_sets_for_the_queue_hold_for_us(harness: RedisHarness, bull: Bull) -> None:
    await harness.store.enqueue([ours(f"plain-{n}") for n in range(9)])
    await bull.control("setGlobalConcurrency", 3)
    jobs = await harness.store.lease({QUEUE: Share(60.0, 9)}, 9, "w")
    assert len(jobs) == 3
    assert await harness.store.lease({QUEUE: Share(60.0, 9)}, 9, "w") == []
    await harness.store.settle([completed(job.lease) for job in jobs])

    await bull.control("removeGlobalConcurrency")
    await bull.control("setGlobalRateLimit", 2, 60_000)
    assert len(await harness.store.lease({QUEUE: Share(60.0, 9)}, 9, "w")) == 2
    assert await harness.store.lease({QUEUE: Share(60.0, 9)}, 9, "w") == []


async def test_an_idle_worker_of_ours_wakes_up_for_nodes_jobs(harness: RedisHarness, bull: Bull) -> None:
    waiting = asyncio.create_task(harness.store.wait([QUEUE], 60.0))
    await asyncio.sleep(0.1)
    await bull.add(("send", {}, {}))

    await asyncio.wait_for(waiting, 10.0)


@pytest.mark.node("deduplication", "removeOnComplete, removeOnFail")
async def test_deduplicated_and_removed_jobs_are_treated_as_node_would(
    harness: RedisHarness, bull: Bull
) -> None:
    first = ("send", {"to": "ann"}, {"deduplication": {"id": "once"}})
    gone = ("send", {"to": "bob"}, {"removeOnComplete": True})
    assert len(set(await bull.add(first, first, gone))) == 2
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE, retry=Retry(attempts=1))
        async def send(to: str) -> str:
            return to

        await burst(app)

    assert [job.result for job in (await stored(harness)).values()] == ["ann"]
    [again] = await bull.add(first)  # the kind is free again
    assert (await stored(harness))[again].status is Status.PENDING


@pytest.mark.parametrize(
    ("option", "end"),
    [
        ("failParentOnFailure", "failed"),
        ("continueParentOnFailure", "completed"),
        ("ignoreDependencyOnFailure", "completed"),
        ("removeDependencyOnFailure", "completed"),
        ("", "waiting-children"),
    ],
)
@pytest.mark.node("flows")
async def test_a_parent_in_a_flow_learns_what_became_of_its_children(
    harness: RedisHarness, bull: Bull, option: str, end: str
) -> None:
    parent, *_ = await bull.flow(("part", {}), ("hopeless", {option: True} if option else {}))
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def whole() -> str:
            return "done"

        @app.task(queue=QUEUE)
        async def part() -> str:
            return "part"

        @app.task(queue=QUEUE)
        async def hopeless() -> None:
            raise Permanent("no")

        await burst(app)

    assert (await bull.look())["jobs"][parent]["state"] == end
    noted = await harness.client.hvals(f"{harness.prefix}:{QUEUE}:{parent}:processed")
    assert noted == [b'"part"']
    assert await broken_rules(harness.store) == []
