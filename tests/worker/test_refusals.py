"""A provider that says "too many requests", or "not until you pay": nothing is spent, and everybody waits."""

import asyncio
import logging
import time
from types import SimpleNamespace

import pytest
from support.waiting import until_async
from support.work import at_work

from unstuck import QuotaExhausted, Rate, RateLimited, Status, Unstuck, Worker, current_job
from unstuck.protocol.limits import of_queue
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import counts, states

pytestmark = pytest.mark.anyio


class Refused(Exception):
    """As clients of HTTP raise it; ``code`` as openai's say it."""

    def __init__(self, retry_after: str | None = None, code: str | None = None) -> None:
        super().__init__("429 Too Many Requests")
        headers = {} if retry_after is None else {"retry-after": retry_after}
        self.response = SimpleNamespace(status_code=429, headers=headers)
        self.code = code


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(Refused("120"), 120.0), (Refused(), 50.0), (RateLimited("slow down", delay=200.0), 200.0)],
    ids=["retry-after", "no wish", "said by the handler"],
)
async def test_a_429_spends_nothing_and_closes_the_bucket_for_everybody(
    app: Unstuck, harness: SQLiteHarness, error: Exception, seconds: float
) -> None:
    go_on, started = asyncio.Event(), []

    @app.task(rate=Rate(10, per=50.0), retry=1)
    async def call(name: str) -> str:
        started.append(name)
        if name == "refused":
            raise error
        await go_on.wait()
        return name

    slow = await call.enqueue("slow")
    async with at_work(app, concurrency=2):
        await until_async(lambda: started == ["slow"], 10, "the slow job to run")
        refused = await call.enqueue("refused")

        async def closed() -> bool:
            grant = await harness.store.take("default", 1, 10, 50.0)
            await harness.store.give_back("default", grant.granted, grant.stamp)
            return grant.granted == 0

        await until_async(closed, 10, "the bucket to be closed, as any other client sees it")
        grant = await harness.store.take("default", 1, 10, 50.0)
        assert grant.wait == pytest.approx(seconds, abs=5.0)

        waiting = await call.enqueue("waiting")
        assert await Worker(app).process_jobs(5) == 0  # another worker finds nothing to start, either
        go_on.set()
        assert await slow.result(10) == "slow"
        assert started == ["slow", "refused"]
        for handle in (refused, waiting):
            job = await handle.job()
            assert (job.status, job.attempts, job.owner) == (Status.PENDING, 0, None)
        due_in = (await refused.job()).run_at.timestamp() - time.time()
        assert due_in == pytest.approx(seconds, abs=5.0)


@pytest.mark.accepts("EMB-161")
async def test_after_a_429_work_goes_on_by_itself_and_the_log_reports_both(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[float] = []

    @app.task(rate=Rate(10, per=30.0), retry=2)
    async def call() -> None:
        starts.append(time.monotonic())
        if len(starts) == 1:
            raise Refused("1")
        if len(starts) == 2:
            raise ConnectionResetError("the line broke")

    handle = await call.enqueue()
    async with at_work(app):
        await handle.result(15)

    assert starts[1] - starts[0] >= 1.0
    assert (await handle.job()).attempts == 2  # of three runs: the refused one is not counted
    # Of this job: on a slow machine a worker also says that its heartbeats were late.
    [refusal, failure] = [record for record in caplog.records if vars(record).get("jobId") == handle.id]
    assert refusal.getMessage().startswith("rate limited for 1.0 s: 429")
    assert {one.name for one in (refusal, failure)} == {"unstuck.worker"}
    assert (vars(failure)["errorType"], vars(failure)["error"]) == ("TRANSIENT", "the line broke")


async def test_jobs_that_wait_in_a_worker_are_given_back_on_a_429_even_without_a_rate(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    started: list[str] = []

    @app.task
    async def call(name: str) -> None:
        started.append(name)
        if name == "refused":
            raise Refused("60")

    await app.enqueue_many([call.call("fine") for _ in range(100)])
    await call.enqueue("refused")
    late = await app.enqueue_many([call.call("late") for _ in range(50)])
    async with at_work(app, concurrency=1):

        async def given_back() -> bool:
            return await states(harness.store, "default") == {"completed": 100, "pending": 51}

        await until_async(given_back, 10, "what was leased ahead to be given back")
    assert "late" not in started
    assert {(await handle.job()).attempts for handle in late[::10]} == {0}


@pytest.mark.parametrize(
    "error",
    [QuotaExhausted("pay first"), Refused(code="insufficient_quota")],
    ids=["said by the handler", "as openai says it"],
)
async def test_an_exhausted_quota_pauses_the_queue_until_it_is_resumed(
    app: Unstuck, harness: SQLiteHarness, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[str] = []
    paid = False

    @app.task(queue="costly", retry=1)
    async def call() -> None:
        started.append(current_job().id)
        if not paid:
            raise error

    @app.task(queue="free")
    async def free() -> str:
        return "free"

    first = await call.enqueue()
    async with at_work(app, concurrency=1) as worker:

        async def paused() -> bool:
            return (await counts(harness.store, "costly")).paused is not None

        await until_async(paused, 10, "the queue to be paused")
        second = await call.enqueue()
        assert await (await free.enqueue()).result(10) == "free"
        assert started == [first.id]
        assert ((await first.job()).status, (await first.job()).attempts) == (Status.PENDING, 0)
        assert (await counts(harness.store, "costly")).paused == f"quota exhausted: {error}"
        alerts = [event for event in await harness.store.events(job=first.ref) if event.type == "alert"]
        assert [event.data["details"]["alert"] for event in alerts] == ["paused"]
        assert any(
            vars(record).get("alert") == "paused" and record.levelno == logging.ERROR
            for record in caplog.records
        )
        assert worker.halted == ""

        paid = True
        assert await (await app.jobs()).resume("costly")
        await first.result(10)
        await second.result(10)


async def test_all_workers_leave_a_queue_without_a_rate_alone_that_one_was_refused(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    starts: list[str] = []

    @app.task
    async def call() -> None:
        starts.append(current_job().id)
        raise RateLimited("slow down", delay=600)

    @app.task(queue="other")
    async def other() -> str:
        return "done"

    async def closed() -> bool:
        return (await harness.store.take(of_queue("default"))).closed_for > 0

    await app.enqueue_many([call.call() for _ in range(20)])
    async with at_work(app, concurrency=1):
        await until_async(closed, 10, "the refusal to be known to all")
    refused = len(starts)
    async with at_work(app), at_work(app):
        handles = await app.enqueue_many([other.call(), *(call.call() for _ in range(20))])
        assert await handles[0].result(20) == "done"
        told = await (await app.jobs()).explain(handles[1].id)

    assert len(starts) == refused
    assert "is left alone by all workers for another" in told


async def _true(value: bool) -> bool:
    return value


@pytest.mark.slow
async def test_a_quota_that_is_exhausted_stops_what_was_leased_ahead(app: Unstuck) -> None:
    """The pause of a queue also holds for its jobs that wait in the worker: no further request is refused."""
    from unstuck.protocol.errors import QuotaExhausted

    refused = 0

    @app.task
    async def job(n: int) -> None:
        nonlocal refused
        if n >= 1000:
            refused += 1
            raise QuotaExhausted("pay first")

    await app.enqueue_many([job.call(n) for n in range(2000)])
    worker = Worker(app, concurrency=1, grace=1.0)
    running = asyncio.create_task(worker.run())
    jobs = await app.jobs()

    async def paused() -> bool:
        [counts] = await jobs.counts()
        return counts.paused is not None

    await until_async(paused, 60, "the pause")
    await asyncio.sleep(0.3)
    worker.stop()
    await running
    assert refused <= 2


@pytest.mark.slow
async def test_a_refusal_stops_what_is_being_leased(app: Unstuck) -> None:
    """Jobs of a lease that was under way when the other side refused us are not started."""
    from unstuck.protocol.errors import RateLimited

    refused = 0

    @app.task
    async def job(n: int) -> None:
        nonlocal refused
        if n >= 1000:
            refused += 1
            raise RateLimited("later", delay=60)

    await app.enqueue_many([job.call(n) for n in range(3000)])
    worker = Worker(app, concurrency=4, grace=1.0)
    running = asyncio.create_task(worker.run())
    await until_async(lambda: _true(refused > 0), 60, "the refusal")
    await asyncio.sleep(0.5)
    worker.stop()
    await running
    assert refused <= 4
