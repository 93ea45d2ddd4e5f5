"""What BullMQ's getters, listeners, metrics and dashboard show of our jobs is what they are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.bull import QUEUE, Bull, ours
from support.command import unstuck
from support.redis import Redis
from support.waiting import until_async
from support.work import burst

from unstuck import Filter, Unstuck
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Category, Failure
from unstuck.protocol.leases import Beat, Share
from unstuck.protocol.outcome import completed, failed
from unstuck.recovery.reaper import Reaper
from unstuck.testing import RedisHarness

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


@pytest.mark.node("getters and dashboards", "QueueEvents")
async def test_nodes_getters_and_listeners_see_our_jobs_as_they_are(
    harness: RedisHarness, bull: Bull
) -> None:
    await harness.store.enqueue([ours("held"), ours("waits"), ours("late", delay=60.0)])
    [job] = await harness.store.lease({QUEUE: Share(60.0, 1)}, 1, "w")
    await harness.store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, 60.0, progress={"done": 3})])

    seen = await bull.look()

    assert {id_: of["state"] for id_, of in seen["jobs"].items()} == {
        "held-1": "active",
        "waits-1": "prioritized",
        "late-1": "delayed",
    }
    assert seen["jobs"]["held-1"]["progress"] == {"done": 3}
    assert seen["jobs"]["waits-1"]["priority"] == 100
    kinds = [kind for kind, id_ in seen["events"] if id_ == "held-1"]
    assert kinds == ["added", "waiting", "active", "progress"]


@pytest.mark.accepts("MQ-043")
async def test_nodes_getters_report_how_our_jobs_ended(harness: RedisHarness, bull: Bull) -> None:
    store = harness.store
    await store.enqueue([ours("good"), ours("bad", max_attempts=1)])
    jobs = {job.task: job for job in await store.lease({QUEUE: Share(60.0, 2)}, 2, "w")}
    await bull.log("good-1", "a line of Node's")
    failure = Failure(
        category=Category.PERMANENT, code="no", message="it is bad", stack="Trace:\n  it is bad"
    )
    await store.settle([completed(jobs["good"].lease, {"n": 2}), failed(jobs["bad"].lease, failure)])

    seen = await bull.look()

    assert (seen["counts"]["completed"], seen["counts"]["failed"], seen["counts"]["active"]) == (1, 1, 0)
    good, bad = seen["jobs"]["good-1"], seen["jobs"]["bad-1"]
    assert (good["state"], good["returnvalue"], good["attemptsMade"]) == ("completed", {"n": 2}, 1)
    assert (good["logs"], good["processedBy"], good["opts"]["attempts"]) == (["a line of Node's"], "w", 3)
    ended = {job.id: job for job in (await store.find(Filter(queue=QUEUE))).jobs}
    for job in (good, bad):
        of = ended[job["opts"]["jobId"]]
        assert of.started_at is not None
        assert of.finished_at is not None
        assert job["processedOn"] == round(of.started_at.timestamp() * 1000)
        assert job["finishedOn"] == round(of.finished_at.timestamp() * 1000)
    assert (bad["state"], bad["failedReason"], bad["stacktrace"]) == (
        "failed", "it is bad", ["Trace:\n  it is bad"],
    )  # fmt: skip
    assert [kind for kind, _ in seen["events"]].count("drained") == 1
    assert seen["events"][-1][0] == "drained"
    assert await store.delete(Filter(ids=("good-1",))) == 1
    assert not await harness.client.exists(f"{harness.prefix}:{QUEUE}:good-1:logs")


@pytest.mark.node("getMetrics")
async def test_what_we_finish_is_in_bullmqs_metrics(harness: RedisHarness, bull: Bull) -> None:
    store = harness.store

    async def end(count: int) -> None:
        await store.enqueue([ours(f"plain-{uuid4().hex}") for _ in range(count)])
        jobs = await store.lease({QUEUE: Share(60.0, count)}, count, "w")
        await store.settle([completed(job.lease) for job in jobs])

    key = f"{harness.prefix}:{QUEUE}:metrics:completed"
    await end(3)
    await harness.client.hincrby(key, "prevTS", -3 * 60_000)  # that was three minutes ago
    await end(2)
    [late] = await store.enqueue([ours("late")])
    await store.cancel([late.ref])

    seen = await bull.look()
    told = seen["metrics"]["completed"]
    assert told["meta"]["count"] == 5
    points = [int(point) for point in told["data"]]
    assert points in ([0, 0, 3], [0, 0, 0, 3])  # if a minute ended meanwhile
    assert seen["metrics"]["failed"]["meta"]["count"] == 1


@pytest.mark.node("getters and dashboards")
async def test_bullmqs_dashboard_lists_our_jobs(harness: RedisHarness, bull: Bull) -> None:
    store = harness.store
    await store.enqueue([ours("good"), ours("bad"), ours("held"), ours("waits"), ours("late", delay=60.0)])
    await store.pause(QUEUE, "for a while")
    assert await store.pause(QUEUE, None)
    good, bad, held = await store.lease({QUEUE: Share(60.0, 3)}, 3, "w")
    await store.heartbeat(WorkerInfo(id="w"), [Beat(held.lease, 60.0, progress=40)])
    failure = Failure(category=Category.PERMANENT, code="no", message="it is bad", stack="Trace")
    await store.settle([completed(good.lease, "fine"), failed(bad.lease, failure)])

    told = await bull.board()

    assert told["status"] == 200
    [queue] = told["queues"]
    counts = {name: count for name, count in queue["counts"].items() if count}
    assert counts == {"active": 1, "completed": 1, "failed": 1, "prioritized": 1, "delayed": 1}
    jobs = {job["id"]: job for job in queue["jobs"]}
    assert set(jobs) == {"good-1", "bad-1", "held-1", "waits-1", "late-1"}
    assert (jobs["good-1"]["returnValue"], jobs["good-1"]["isFailed"]) == ("fine", False)
    assert (jobs["bad-1"]["failedReason"], jobs["bad-1"]["stacktrace"]) == ("it is bad", ["Trace"])
    assert (jobs["held-1"]["progress"], jobs["held-1"]["name"]) == (40, "held")
    assert jobs["waits-1"]["data"] == {"n": 1}
    assert jobs["late-1"]["delay"] == 60_000


async def test_the_doctor_leads_to_the_cause_in_a_queue_that_only_node_used(
    redis7: Redis, harness: RedisHarness, bull: Bull, tmp_path: Path
) -> None:
    """A worker of Node's was killed at work, and somebody removed a job's key by hand."""
    job: tuple[str, Any, dict[str, Any]] = ("send", {}, {"attempts": 3})
    first, second = await bull.add(job, job)
    await bull.die_at_work(2)
    base = f"{harness.prefix}:{QUEUE}"
    await harness.client.delete(f"{base}:{first}")

    async def stalled() -> bool:  # when the locks of the dead worker have run out
        return not await harness.client.exists(f"{base}:{first}:lock", f"{base}:{second}:lock")

    await until_async(stalled, 20, "the locks to end")
    done = await asyncio.to_thread(unstuck, tmp_path, "doctor", harness.url)
    assert done.returncode == 1
    assert (
        f"1 jobs of queue mail are stalled: they are active, but no worker holds them: {second}"
        in done.stdout
    )
    assert (
        f"1 entries of queue mail have no job: it was removed by hand, evicted or lost: {first}"
        in done.stdout
    )

    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE)
        async def send() -> str:
            return "sent"

        reaper = Reaper(harness.store, grace=0.5)

        async def back() -> bool:
            await reaper.recover()
            await burst(app)
            return [job.result for job in (await harness.store.find(Filter(queue=QUEUE))).jobs] == ["sent"]

        await until_async(back, 20, "the stalled job to be done")
    after = [finding.what for finding in await harness.store.checkup() if finding.level == "failure"]
    assert after == []


async def test_a_queue_that_only_node_used_is_known_to_the_command(
    harness: RedisHarness, bull: Bull, tmp_path: Path
) -> None:
    await bull.add(("send", {}, {}))

    misspelt = await asyncio.to_thread(unstuck, tmp_path, "pause", f"{QUEUE}x", store=harness.url)
    paused = await asyncio.to_thread(unstuck, tmp_path, "pause", QUEUE, store=harness.url)

    assert (misspelt.returncode, paused.returncode) == (2, 0), misspelt.stderr + paused.stderr
