"""CRITICAL errors: nothing more is started, by anybody, until somebody has looked."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from support.spy import spied
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import Jobs, Status, StoreDamaged, Unstuck, Worker
from unstuck.protocol.job import Ref
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import counts, states

pytestmark = pytest.mark.anyio


Calls = Callable[[str], Awaitable[str]]


def handler(started: list[str], go_on: asyncio.Event) -> Calls:
    async def call(name: str) -> str:
        started.append(name)
        if name == "critical":
            corrupt = sqlite3.DatabaseError("the database is corrupt")
            corrupt.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise corrupt
        if name == "slow":
            await go_on.wait()
        return name

    return call


async def alerts(harness: SQLiteHarness, ref: Ref) -> list[object]:
    told = [event for event in await harness.store.events(job=ref) if event.type == "alert"]
    return [event.data["details"]["alert"] for event in told]


@pytest.mark.accepts("EMB-067", "EMB-068")
async def test_a_critical_error_ends_the_worker_and_pauses_its_queue(
    app: Unstuck, harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[str] = []
    go_on = asyncio.Event()
    call = app.task(name="call", retry=5)(handler(started, go_on))
    slow, critical = await app.enqueue_many([call.call("slow"), call.call("critical")])
    rest = await app.enqueue_many([call.call("rest") for _ in range(20)])
    worker = Worker(app, concurrency=2)
    running = asyncio.create_task(worker.run())

    async def failed() -> bool:
        return await critical.status() is Status.FAILED

    await until_async(failed, 10, "the critical job to be failed")
    assert (await counts(harness.store, "default")).halted == "CRITICAL: the database is corrupt"
    assert (await counts(harness.store, "default")).paused is None
    assert (await Jobs(harness.store).get_health_status()).status == "CRITICAL"
    go_on.set()  # what runs may finish
    async with asyncio.timeout(10):
        await running

    assert worker.halted == "the database is corrupt"
    assert worker.get_health_status().status == "CRITICAL"
    assert await slow.status() is Status.COMPLETED
    assert started == ["slow", "critical"]
    assert {((await one.job()).status, (await one.job()).attempts) for one in rest} == {(Status.PENDING, 0)}
    grave = [vars(record) for record in caplog.records if record.levelno == logging.CRITICAL]
    assert {"CRITICAL"} == {
        facts["errorType"] for facts in grave if facts.get("jobId") and "errorType" in facts
    }
    assert await alerts(harness, critical.ref) == ["halted"]


@pytest.mark.accepts("EMB-069")
async def test_no_worker_starts_anything_until_the_queue_is_resumed(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    started: list[str] = []
    call = app.task(name="call", retry=5)(handler(started, asyncio.Event()))
    async with at_work(app) as other:  # one that was there all the time
        await call.enqueue("first")
        await until_async(lambda: started == ["first"], 10, "the other worker to be at work")
        await call.enqueue("critical")

        async def halted() -> bool:
            return (await counts(harness.store, "default")).halted is not None

        await until_async(halted, 10, "the queue to be halted")
        waiting = await call.enqueue("waiting")
        del started[:]
        await burst(app)  # a restart
        assert await Worker(app).process_jobs(5) == 0
        async with at_work(app):  # a second worker that keeps running
            await asyncio.sleep(0.5)  # time enough to start it wrongly
            assert started == []
            assert (await waiting.job()).fence == 0
            assert other.halted
            assert await Jobs(harness.store).resume("default")
            assert await waiting.result(10) == "waiting"


async def test_jobs_leased_ahead_are_given_back_by_a_halt(app: Unstuck, harness: SQLiteHarness) -> None:
    started: list[str] = []
    call = app.task(name="call", retry=5)(handler(started, asyncio.Event()))
    await app.enqueue_many([call.call("quick") for _ in range(200)])
    await call.enqueue("critical")
    await app.enqueue_many([call.call("rest") for _ in range(50)])
    book = await spied(app)
    await burst(app, concurrency=1)

    assert "rest" not in started
    assert await states(harness.store, "default") == {"completed": 200, "failed": 1, "pending": 50}
    leased = sum(len(one.args[0]) for one in book.of("settle"))
    assert leased > 201  # otherwise nothing was leased ahead, and this test shows nothing


@pytest.mark.parametrize("operation", ["lease", "settle", "heartbeat"])
async def test_a_damaged_store_halts_the_worker_without_an_endless_loop(
    app: Unstuck, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, started = asyncio.Event(), asyncio.Event()

    @app.task
    async def quick() -> None: ...

    @app.task
    async def slow() -> None:
        started.set()
        await go_on.wait()

    book = await spied(app)
    worker = Worker(app, grace=1.0)
    if operation == "heartbeat":
        book.fails["heartbeat"] = StoreDamaged("the file is damaged")
    running = asyncio.create_task(worker.run())
    if operation != "heartbeat":
        await slow.enqueue()
        await started.wait()
        book.fails[operation] = StoreDamaged("the file is damaged")
        await quick.enqueue()
    await until_async(lambda: worker.halted, 10, "the worker to halt")
    async with asyncio.timeout(10):
        await running  # although a job runs, it asks the store for nothing all the time

    assert worker.halted == "the file is damaged"
    assert worker.get_health_status().status == "CRITICAL"
    assert len(book.of(operation)) < 20
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)


async def test_a_round_by_hand_reports_a_damaged_store(app: Unstuck) -> None:
    @app.task
    async def quick() -> None: ...

    await quick.enqueue()
    book = await spied(app)
    book.fails["lease"] = StoreDamaged("the file is damaged")

    with pytest.raises(StoreDamaged):
        await Worker(app).process_jobs(5)
    with suppress(StoreDamaged):
        await Worker(app).process_jobs(5)
    assert len(book.of("lease")) == 2
