"""Jobs that expire, and what follows a job, on queues that Node shares."""

from collections.abc import AsyncIterator

import pytest
from support.bull import QUEUE, Bull, ours
from support.redis import Redis
from support.waiting import until_async
from support.work import at_work

from unstuck import Filter, Permanent, Retry, Status, Unstuck
from unstuck.operations.verify import broken_rules
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Share
from unstuck.recovery.reaper import Reaper
from unstuck.testing import RedisHarness

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


async def stored(harness: RedisHarness, queue: str = QUEUE) -> dict[str, Job]:
    return {job.id: job for job in (await harness.store.find(Filter(queue=queue))).jobs}


@pytest.mark.node("expires")
async def test_node_does_not_run_what_a_reaper_has_failed_but_runs_what_it_takes_before(
    harness: RedisHarness, bull: Bull
) -> None:
    await harness.store.enqueue([ours("late", expires=60.0), ours("plain")])
    await harness.age(61)
    await Reaper(harness.store).recover()
    await harness.store.enqueue([ours("urgent", expires=60.0)])
    await harness.age(61)

    await bull.work(2)

    jobs = await stored(harness)
    assert jobs["late-1"].expired
    assert (jobs["plain-1"].status, jobs["urgent-1"].status) == (Status.COMPLETED, Status.COMPLETED)
    assert (await bull.look())["jobs"]["late-1"]["failedReason"].startswith("it was not started before")
    assert await broken_rules(harness.store) == []


@pytest.mark.node("expires")
async def test_node_sees_what_waits_for_a_reaper_as_delayed(harness: RedisHarness, bull: Bull) -> None:
    await harness.store.enqueue([ours("late", expires=60.0)])
    await harness.age(61)
    assert await harness.store.lease({QUEUE: Share(60.0, 1)}, 1, "w") == []

    assert (await bull.look())["counts"]["delayed"] == 1
    assert (await stored(harness))["late-1"].status is Status.PENDING


@pytest.mark.node("on_success, on_failure")
async def test_a_job_of_nodes_is_followed_when_it_succeeds_and_ours_also_when_it_fails(
    harness: RedisHarness, bull: Bull
) -> None:
    async with Unstuck(harness.url) as app:

        @app.task(queue="follow")
        async def ship(sent: str) -> None: ...

        @app.task(queue="follow")
        async def report(which: str, task: str, why: object) -> None: ...

        @app.task(queue=QUEUE, retry=Retry(1), on_success=ship, on_failure=report)
        async def send(to: str) -> str:
            if to == "nobody":
                raise Permanent("no such address")
            return f"sent to {to}"

        await bull.add(("send", {"to": "ann"}, {}), ("send", {"to": "nobody"}, {}))
        ours_ = await send.enqueue("nobody")
        async with at_work(app, queues=[QUEUE]):

            async def over() -> bool:
                return all(job.finished_at for job in (await stored(harness)).values())

            await until_async(over, 20, "all jobs to end")

    followers = (await stored(harness, "follow")).values()
    assert sorted((job.task, job.payload.get("sent"), job.payload.get("which")) for job in followers) == [
        ("report", None, ours_.id),
        ("ship", "sent to ann", None),
    ]
