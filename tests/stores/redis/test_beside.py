"""Our workers and BullMQ's beside each other: who leaves whose jobs alone, who sees what the other did."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from support.bull import QUEUE, Bull, ours
from support.redis import Redis
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Category, Filter, JobFailed, Status, Unstuck
from unstuck.operations.verify import broken_rules
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Failure, Ref
from unstuck.protocol.leases import Beat, Share, Verdict
from unstuck.protocol.outcome import Settled, completed, retried
from unstuck.recovery.reaper import Reaper
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import now

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


@pytest.mark.node("stalled jobs")
async def test_a_worker_of_nodes_takes_what_our_lease_lost_and_nothing_that_we_hold(
    harness: RedisHarness, bull: Bull
) -> None:
    """It looks for stalled jobs every second. A stage of a minute is longer than any lock of its own."""
    store = harness.store
    await store.enqueue([ours("lost"), ours("staged"), ours("held")])
    lost, staged, held = await store.lease({QUEUE: Share(1.0, 3)}, 3, "w")
    beats = [Beat(staged.lease, 60.0, stage="burn-in"), Beat(held.lease, 120.0)]
    await store.heartbeat(WorkerInfo(id="w", queues=(QUEUE,)), beats)
    await bull.work(1)

    jobs = {job.task: job for job in (await store.find(Filter(queue=QUEUE))).jobs}
    assert jobs["lost"].result == {"by": "node", "data": {"n": 1}}
    assert [jobs[task].status for task in ("staged", "held")] == [Status.PROCESSING] * 2
    late = [completed(job.lease, "ours") for job in (lost, staged, held)]
    assert await store.settle(late) == [Settled.LOST, Settled.APPLIED, Settled.APPLIED]
    assert (await bull.look())["jobs"]["lost-1"]["returnvalue"] == {"by": "node", "data": {"n": 1}}
    assert await broken_rules(store) == []


async def test_an_outcome_is_refused_while_a_worker_of_nodes_runs_the_job(
    harness: RedisHarness, bull: Bull
) -> None:
    """It knows no fences: that it began once more is all that tells the two leases apart."""
    store, running = harness.store, f"{harness.prefix}:{QUEUE}:long-1"
    await store.enqueue([ours("long")])
    [job] = await store.lease({QUEUE: Share(1.0, 1)}, 1, "w")
    async with bull.at_work(slow=60_000):

        async def begun() -> bool:
            return bool(await harness.client.hget(running, "ats") == b"2")

        await until_async(begun, 30, "a worker of theirs to run it")
        pulse = await store.heartbeat(WorkerInfo(id="w", queues=(QUEUE,)), [Beat(job.lease, 60.0)])
        assert pulse.verdicts == {job.lease: Verdict.LOST}
        assert await store.settle([completed(job.lease)]) == [Settled.LOST]
        assert await harness.client.get(f"{running}:lock") is not None


async def test_what_each_side_finished_is_counted_once(harness: RedisHarness, bull: Bull) -> None:
    store = harness.store
    await store.enqueue([ours("theirs"), ours("ours", run_at=now() + timedelta(hours=1))])
    await Reaper(store).recover()
    await bull.work(1)
    sign = f"{harness.prefix}:{QUEUE}:stalled-check"  # that a worker of theirs is there
    await harness.client.set(sign, "1", px=60_000)
    await store.edit([Ref(QUEUE, "ours-1")], run_at=now())
    [job] = await store.lease({QUEUE: Share(60.0, 1)}, 1, "w")
    await store.settle([completed(job.lease)])
    for _ in range(2):
        await Reaper(store).recover()

    [of] = await store.count()
    assert of.totals["completed"] == 2


@pytest.mark.node("results")
async def test_a_handle_of_ours_sees_what_a_worker_of_nodes_made_of_the_job(
    harness: RedisHarness, bull: Bull
) -> None:
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send(to: str) -> object: ...  # Node has it

        @app.task(queue=QUEUE, retry=1)
        async def hopeless(to: str) -> None: ...

        good, bad = await send.enqueue("ann"), await hopeless.enqueue("bob")
        waiting = asyncio.create_task(good.result(60))
        await bull.work(2)

        assert await waiting == {"by": "node", "data": {"to": "ann"}}
        assert (await good.status(), await bad.status()) == (Status.COMPLETED, Status.FAILED)
        with pytest.raises(JobFailed, match="hopeless does not work"):
            await bad.result(60)


async def test_a_key_that_was_enqueued_twice_is_one_job_for_a_worker_of_nodes(
    harness: RedisHarness, bull: Bull
) -> None:
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send(to: str) -> object: ...  # Node has it

        first = await send.options(key="welcome").enqueue("ann")
        again = await send.options(key="welcome").enqueue("ann")
        other = await send.enqueue("bob")
        await bull.work(2)

        assert first.id == again.id
        ended = [id_ for kind, id_ in (await bull.look())["events"] if kind == "completed"]
        assert sorted(ended) == sorted([first.id, other.id])


@pytest.mark.parametrize("followed", [True, False])
async def test_what_failed_at_nodes_is_retried_by_the_code_that_it_is_shown_with(
    harness: RedisHarness, bull: Bull, followed: bool
) -> None:
    """Also one that had failed at ours before, with a code of its own, and whether or not a reaper was told of it."""
    store = harness.store
    await store.enqueue([ours("hopeless", max_attempts=2)])
    [job] = await store.lease({QUEUE: Share(60.0, 1)}, 1, "w")
    await store.settle(
        [retried(job.lease, Failure(category=Category.CRITICAL, code="no", message="no"), 0.0)]
    )
    [theirs] = await bull.add(("hopeless", {}, {}))
    if followed:
        await Reaper(store).recover()
    await bull.work(2)
    if followed:
        await Reaper(store).recover()

    dead = (await store.find(Filter(queue=QUEUE, dead=True))).jobs
    shown = {job.id: (job.error.category, job.error.code) for job in dead if job.error}
    assert shown == dict.fromkeys(["hopeless-1", theirs], (Category.TRANSIENT, "failed"))
    for other in (Filter(queue=QUEUE, code="no"), Filter(queue=QUEUE, category=Category.CRITICAL)):
        assert (await store.find(other)).jobs == []
        assert await store.requeue(other) == 0
    assert len((await store.find(Filter(queue=QUEUE, category=Category.TRANSIENT))).jobs) == 2
    assert await store.requeue(Filter(queue=QUEUE, code="failed")) == 2
    # As long as they wait it is the last failure of ours that they are shown with.
    assert [job.id for job in (await store.find(Filter(queue=QUEUE, code="no"))).jobs] == ["hopeless-1"]


async def test_what_was_cancelled_put_back_and_then_failed_at_nodes_is_a_dead_letter(
    harness: RedisHarness, bull: Bull
) -> None:
    store = harness.store
    [answer] = await store.enqueue([ours("hopeless", max_attempts=1)])
    await store.cancel([answer.ref])
    assert (await store.find(Filter(queue=QUEUE, dead=True))).jobs == []
    assert await store.requeue(Filter(queue=QUEUE)) == 1

    await bull.work(1)

    assert [(job.id, job.dead) for job in (await store.find(Filter(queue=QUEUE, dead=True))).jobs] == [
        (answer.id, True)
    ]
    [of] = await store.count()
    assert (of.failed, of.cancelled) == (1, 0)


@pytest.mark.node("attempts", "QueueEvents")
async def test_what_node_gave_two_attempts_fails_with_the_second_on_our_worker(
    harness: RedisHarness, bull: Bull
) -> None:
    tries: list[str] = []
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send(to: str) -> None:
            tries.append(to)
            raise ConnectionError("nobody there")

        opts: dict[str, Any] = {"attempts": 2, "backoff": {"type": "fixed", "delay": 50}}
        [id_] = await bull.add(("send", {"to": "ann"}, opts))
        async with at_work(app):

            async def over() -> bool:
                jobs = (await harness.store.find(Filter(queue=QUEUE, status=Status.FAILED))).jobs
                return [job.id for job in jobs] == [id_]

            await until_async(over, 20, "the job to be given up")

    assert tries == ["ann", "ann"]
    seen = await bull.look()
    of = seen["jobs"][id_]
    assert (of["state"], of["attemptsMade"], of["failedReason"]) == ("failed", 2, "nobody there")
    assert [kind for kind, job in seen["events"] if job == id_] == [
        "added", "waiting", "active", "delayed", "waiting", "active", "failed", "retries-exhausted",
    ]  # fmt: skip


@pytest.mark.node("removeOnComplete, removeOnFail")
async def test_a_queue_keeps_as_many_events_and_finished_jobs_as_node_asked_for(
    harness: RedisHarness, bull: Bull
) -> None:
    stream = f"{harness.prefix}:{QUEUE}:events"
    await harness.client.hset(f"{harness.prefix}:{QUEUE}:meta", "opts.maxLenEvents", "20")
    await harness.store.enqueue([ours("stays")])  # or "drained" would be told, too
    for _ in range(10):
        await harness.store.enqueue([ours(f"urgent-{n}", priority=9) for n in range(20)])
        jobs = await harness.store.lease({QUEUE: Share(60.0, 20)}, 20, "w")
        await harness.store.settle([completed(job.lease) for job in jobs])
        await harness.store.delete(Filter(queue=QUEUE), 1000)
    assert await harness.client.xlen(stream) < 20 + 100 + 120  # in blocks of a hundred, once a step

    assert await harness.store.cancel([Ref(QUEUE, "stays-1")]) == 1
    assert await harness.store.delete(Filter(queue=QUEUE)) == 1
    kept = {"removeOnComplete": {"count": 2}, "removeOnFail": {"age": 3600}}
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send(to: str) -> None:
            if to == "nobody":
                raise ConnectionError("nobody there")

        await bull.add(*(("send", {"to": f"{n}"}, kept) for n in range(5)))
        await bull.add(("send", {"to": "nobody"}, kept))
        await burst(app)
        assert (await bull.look())["counts"]["completed"] == 2
        await harness.age(2 * 3600)
        [last] = await bull.add(("send", {"to": "nobody"}, kept))
        await burst(app)
    failed = (await harness.store.find(Filter(queue=QUEUE, status=Status.FAILED))).jobs
    assert [job.id for job in failed] == [last], "the one of two hours ago was to go"
    await Reaper(harness.store).recover()
    assert await broken_rules(harness.store) == []


async def test_how_long_a_worker_of_nodes_still_holds_a_job_is_read_from_its_lock(
    harness: RedisHarness,
) -> None:
    """As its scripts leave a job that runs: in the list, with who and since when, and a lock that ends."""
    await harness.store.enqueue([ours("plain")])
    [job] = (await harness.store.find(Filter())).jobs
    base = harness.base(QUEUE)
    await harness.client.zrem(f"{base}prioritized", job.id)
    await harness.client.lpush(f"{base}active", job.id)
    began = now() - timedelta(minutes=5)
    await harness.client.hset(
        base + job.id, mapping={"pb": "shrinker", "processedOn": round(began.timestamp() * 1000)}
    )
    [held] = (await harness.store.find(Filter(owner="shrinker"))).jobs
    assert held.lease_until is None  # nobody holds it any more
    await harness.client.set(f"{base}{job.id}:lock", "token", px=300_000)

    [held] = (await harness.store.find(Filter(owner="shrinker"))).jobs
    assert held.lease_until is not None
    assert timedelta(minutes=4) < held.lease_until - now() <= timedelta(minutes=5)
    assert held.started_at is not None
    assert abs(held.started_at - began) < timedelta(seconds=1)
    assert held.heartbeat_at is None
    assert (await Reaper(harness.store).recover()) == []
    await harness.client.persist(f"{base}{job.id}:lock")
    assert (await harness.store.find(Filter(owner="shrinker"))).jobs[0].lease_until is None


async def test_a_job_in_the_hands_of_a_worker_of_nodes_shows_since_when_and_for_how_long(
    harness: RedisHarness, bull: Bull
) -> None:
    await harness.store.enqueue([ours("plain")])
    async with bull.at_work(slow=60_000):

        async def held() -> bool:
            return bool((await harness.store.find(Filter(status=Status.PROCESSING))).jobs)

        await until_async(held, 30, "a worker of theirs to run it")
        [job] = (await harness.store.find(Filter(status=Status.PROCESSING))).jobs
        assert job.started_at is not None
        assert job.lease_until is not None
        assert job.lease_until > job.started_at
