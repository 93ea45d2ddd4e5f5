"""A message queue on Redis, as an application uses it: publish, work, fail, be told. The lines of seed 003 one by one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.bull import QUEUE, Bull, ours
from support.node import NEWEST
from support.redis import Redis
from support.waiting import until_async
from support.work import at_work, burst
from support.workers import Workers

from unstuck import Filter, JobFailed, Status, Transient, Unstuck, current_job
from unstuck.protocol.outcome import completed
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import enqueued, leased, look

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url(), "&events=all") as harness:
        yield harness


@pytest.mark.accepts("MQ-002", "MQ-012")
async def test_each_job_is_run_by_its_own_handler_in_its_own_queue(
    app: Unstuck, harness: RedisHarness
) -> None:
    @app.task(queue="mail")
    async def send(to: str) -> str:
        return f"sent to {to}"

    @app.task(queue="sums")
    def add(a: int, b: int = 1) -> int:
        return a + b

    mail, total = await send.enqueue("ann"), await add.enqueue(2)
    for handle in (mail, total):
        assert await harness.client.zscore(f"{harness.prefix}:{handle.queue}:prioritized", handle.id)
    await burst(app)

    assert (await mail.result(), await total.result()) == ("sent to ann", 3)
    assert (mail.queue, total.queue) == ("mail", "sums")


@pytest.mark.accepts("MQ-004")
async def test_a_producer_does_not_wait_for_the_job(app: Unstuck) -> None:
    release = asyncio.Event()

    @app.task
    async def slow() -> str:
        await release.wait()
        return "done"

    handle = await slow.enqueue()  # returns although no worker runs
    assert await handle.status() is Status.PENDING
    running = asyncio.create_task(burst(app))
    release.set()
    await running
    assert await handle.result() == "done"


@pytest.mark.slow
@pytest.mark.accepts("MQ-010", "MQ-014", "MQ-015")
async def test_worker_processes_consume_apart_from_the_publisher_and_more_can_be_started(
    workers: Workers,
) -> None:
    first = workers.start("--processes", "0", "--concurrency", "2")

    async def at_work(count: int) -> bool:
        """Whether so many processes have run jobs. There are always some more than are done."""
        if sum(job.status is Status.PENDING for job in await workers.jobs()) < 10:
            await workers.enqueue("step", 20, seconds=0.05)
        return len({run.pid for run in workers.ledger.runs()}) == count

    await until_async(lambda: at_work(1), 30, "the first to be at work", first.log)
    second = workers.start("--processes", "0", "--concurrency", "2")
    await until_async(lambda: at_work(2), 30, "the second to take its share", second.log)

    jobs = await workers.finished(60, first)
    assert {job.status for job in jobs} == {Status.COMPLETED}
    assert len(workers.ledger.runs()) == len(jobs), "one was run twice"


@pytest.mark.accepts("MQ-020", "MQ-022", "MQ-023")
async def test_a_transient_error_is_retried_after_a_backoff_that_doubles(
    app: Unstuck, harness: RedisHarness
) -> None:
    tries: list[int] = []

    @app.task(retry=4)
    async def flaky() -> str:
        tries.append(current_job().attempt)
        if len(tries) < 4:
            raise ConnectionResetError("gone")
        return "at last"

    handle = await flaky.enqueue()
    for step in (1.0, 2.0, 4.0):  # the usual backoff
        await burst(app)
        job = await handle.job()
        assert job.error is not None
        assert job.error.at is not None
        assert step <= (job.run_at - job.error.at).total_seconds() <= step * 1.2 + 0.01
        assert await harness.client.zscore(f"{harness.prefix}:{job.queue}:delayed", job.id)
        if step > 2.0:  # else its time might have come
            assert await leased(harness.store, queue=job.queue) == [], "it was to be had before its time"
        await harness.age(600)
    await burst(app)

    assert tries == [1, 2, 3, 4]
    assert await handle.result() == "at last"


@pytest.mark.accepts("MQ-021", "MQ-024", "MQ-025")
async def test_an_error_that_stays_makes_a_dead_letter_where_dashboards_look(
    app: Unstuck, harness: RedisHarness, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    @app.task(retry=3)
    async def broken() -> None:
        tries.append(1)
        raise Transient("still broken", code="upstream")

    handle = await broken.enqueue()
    for _ in range(5):
        await burst(app)
        await harness.age(30)

    assert len(tries) == 3
    with pytest.raises(JobFailed, match="still broken"):
        await handle.result()
    [dead] = (await harness.store.find(Filter(dead=True))).jobs
    assert (dead.id, dead.attempts) == (handle.id, 3)
    assert await harness.client.zscore(f"{harness.prefix}:{handle.queue}:failed", handle.id)


@pytest.mark.accepts("MQ-026", "MQ-044")
async def test_listeners_are_informed_by_events_on_both_sides(
    harness: RedisHarness, redis7: Redis, tmp_path: Path
) -> None:
    bull = Bull(NEWEST, redis7, harness, tmp_path / "node.log")
    async with Unstuck(harness.url) as app:

        @app.task(queue=QUEUE, retry=1)
        async def work(fine: bool) -> None:
            if not fine:
                raise Transient("it is not")

        good, bad = await work.enqueue(fine=True), await work.enqueue(fine=False)
        async with at_work(app):
            await good.result(30)
            with pytest.raises(JobFailed):
                await bad.result(30)

    told = {
        handle.id: [event.type for event in await harness.store.events(job=handle.ref)]
        for handle in (good, bad)
    }
    assert told == {
        good.id: ["enqueued", "leased", "completed"],
        bad.id: ["enqueued", "leased", "failed", "alert"],
    }
    heard = (await bull.look())["events"]
    assert ["completed", good.id] in heard
    assert ["failed", bad.id] in heard


@pytest.mark.accepts("MQ-030", "MQ-031")
async def test_an_urgent_job_runs_before_default_ones_that_wait_on_a_worker_of_nodes_too(
    harness: RedisHarness, redis7: Redis, tmp_path: Path
) -> None:
    """What lies in BullMQ's list of plain jobs would come before every urgent one: ours never lie there."""
    bull = Bull(NEWEST, redis7, harness, tmp_path / "node.log")
    plain = [ours(f"plain-{n}") for n in range(8)]
    await harness.store.enqueue([*plain, ours("urgent", priority=9), ours("middling", priority=4)])
    await bull.work(10)

    started = [id_ for kind, id_ in (await bull.look())["events"] if kind == "active"]
    assert started == ["urgent-1", "middling-1", *(job.id for job in plain)]


@pytest.mark.accepts("MQ-006", "MQ-013")
async def test_a_job_is_kept_until_it_is_done_and_then_given_to_nobody(
    harness: RedisHarness, redis7: Redis
) -> None:
    [ref] = await enqueued(harness.store)
    await asyncio.to_thread(redis7.kill9)
    await asyncio.to_thread(redis7.start)

    [job] = await leased(harness.store)
    assert job.ref == ref
    await asyncio.to_thread(redis7.kill9)
    await asyncio.to_thread(redis7.start)
    assert await look(harness.store, ref) == job
    await harness.store.settle([completed(job.lease)])
    assert await leased(harness.store) == []
    for name in ("wait", "prioritized", "delayed", "active"):
        assert not await harness.client.exists(f"{harness.prefix}:q:{name}")
