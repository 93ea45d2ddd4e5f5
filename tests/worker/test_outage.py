"""A store that goes away and comes back, and what a worker says of itself meanwhile."""

import asyncio
import logging
import time
from typing import Any

import pytest
from support.spy import Book, spied
from support.waiting import until_async
from support.work import at_work

from unstuck import Jobs, Retry, Status, StoreUnavailable, Unstuck, Worker, current_job
from unstuck.app.handle import Handle
from unstuck.protocol.errors import StoreDamaged
from unstuck.protocol.fleet import WorkerInfo
from unstuck.recovery.reaper import Reaper
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import states
from unstuck.worker import store_io

pytestmark = pytest.mark.anyio
AWAY = StoreUnavailable("the database is away")


async def beaten(harness: SQLiteHarness, since: float) -> bool:
    workers: list[WorkerInfo] = (await harness.store.fleet()).workers
    return any(one.seen_at is not None and one.seen_at.timestamp() > since for one in workers)


async def test_after_an_outage_outcomes_are_written_and_work_goes_on(
    app: Unstuck, harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, runs = asyncio.Event(), []

    @app.task(heartbeat=0.1)
    async def work(number: int) -> int:
        runs.append(number)
        await go_on.wait()
        return number

    handles = await app.enqueue_many([work.call(number) for number in range(5)])
    book = await spied(app)
    async with at_work(app):
        await until_async(lambda: len(runs) == 5, 10, "all five to run")
        book.fails["*"] = AWAY
        go_on.set()
        await until_async(lambda: "does not answer" in caplog.text, 10, "the worker to notice")
        assert await states(harness.store, "default") == {"processing": 5}
        book.fails.clear()
        assert [await handle.result(10) for handle in handles] == [0, 1, 2, 3, 4]
        assert await (await work.enqueue(5)).result(10) == 5  # it consumes again by itself
    assert runs == [0, 1, 2, 3, 4, 5]


async def test_outcomes_are_written_as_soon_as_a_heartbeat_goes_through_again(
    app: Unstuck, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_io, "LONGEST_PAUSE", 3600.0)
    go_on, running = asyncio.Event(), asyncio.Event()

    @app.task(heartbeat=0.1)
    async def work() -> str:
        running.set()
        await go_on.wait()
        return "done"

    handle = await work.enqueue()
    book = await spied(app)
    async with at_work(app) as worker:
        await running.wait()
        book.fails["*"] = AWAY
        await until_async(lambda: "heartbeat failed" in caplog.text, 60, "a heartbeat to fail")
        worker._store_io._failures = 30  # as after a long outage
        go_on.set()
        await until_async(lambda: "the store does not answer" in caplog.text, 60, "the worker to wait")
        book.fails.clear()
        assert await handle.result(60) == "done"


@pytest.mark.parametrize("error", [AWAY, RuntimeError("a mistake of a driver")], ids=["away", "mistake"])
async def test_beats_come_back_after_their_own_connection_failed(
    app: Unstuck, harness: SQLiteHarness, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, running = asyncio.Event(), asyncio.Event()

    @app.task(lease=10.0, heartbeat=0.1)
    async def work() -> str:
        running.set()
        await go_on.wait()
        return "still mine"

    handle = await work.enqueue()
    book = await spied(app)
    async with at_work(app, recovery=0.2):
        await running.wait()
        before = await handle.job()
        book.fails |= {
            "heartbeat": error,
            "open": error,
        }  # a connection that broke, and no new one for a while
        failed = len(book.of("heartbeat")) + 2
        await until_async(
            lambda: len(book.of("heartbeat")) >= failed or caplog.text.count("heartbeats failed") >= 2,
            10,
            "two failures",
        )
        book.fails.clear()
        over = time.time()
        assert await until_async(lambda: beaten(harness, over), 10, "a beat after the outage")
        assert await Reaper(harness.store).recover() == []
        go_on.set()
        assert await handle.result(10) == "still mine"
    assert (await handle.job()).fence == before.fence


async def test_who_talks_a_lot_does_not_press_a_store_that_is_away(app: Unstuck) -> None:
    @app.task(lease=600.0, heartbeat=60.0)
    async def work() -> None:
        book.fails["heartbeat"] = AWAY
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            current_job().progress(0.5)
            await asyncio.sleep(0)
        book.fails.clear()

    handle = await work.enqueue()
    book: Book = await spied(app)
    async with at_work(app):
        await handle.result(10)
        assert len(book.of("heartbeat")) < 15


@pytest.mark.accepts("EMB-081", "EMB-082", "EMB-083")
async def test_the_fifth_failure_in_a_row_shows_in_log_and_status_and_one_success_heals_it(
    app: Unstuck, harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "unstuck.health")

    @app.task(retry=Retry(attempts=1))
    async def work(good: bool) -> None:
        if not good:
            raise ConnectionResetError("gone")

    async def failed(times: int) -> None:
        for _ in range(times):
            handle = await work.enqueue(False)

            async def over(handle: Handle[None] = handle) -> bool:
                return await handle.status() is Status.FAILED

            await until_async(over, 10, "the failure")

    jobs = Jobs(harness.store)
    async with at_work(app) as worker:
        await failed(4)
        await worker._heartbeat.confirm()
        status = await jobs.get_health_status()
        assert (status.status, status.consecutive_failures) == ("HEALTHY", 4)
        assert not [record for record in caplog.records if record.name == "unstuck.health"]

        await failed(1)
        await worker._heartbeat.confirm()
        status = await jobs.get_health_status("default")
        assert (status.status, status.consecutive_failures) == ("DEGRADED", 5)
        assert (status.success_rate, status.patterns) == (0.0, {"ConnectionResetError": 5})
        [warning] = [record for record in caplog.records if record.name == "unstuck.health"]
        assert (warning.levelno, vars(warning)["consecutiveFailures"]) == (logging.WARNING, 5)

        await (await work.enqueue(True)).result(10)
        await worker._heartbeat.confirm()
        status = await jobs.get_health_status()
        assert (status.status, status.consecutive_failures, status.patterns) == ("HEALTHY", 0, {})
        assert status.last_success is not None
        assert "recovered: a job succeeded after 5 failures in a row" in caplog.messages


class Broken:
    """A store that stops answering, or turns out to be damaged, when it is told so."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.error: Exception | None = None
        self.settles = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def settle(self, outcomes: Any) -> Any:
        self.settles += 1
        if self.error:
            raise self.error
        return await self._store.settle(outcomes)


@pytest.mark.slow
async def test_a_damaged_store_is_not_asked_all_the_time_while_jobs_run(app: Unstuck) -> None:
    """A worker that waits for its last jobs sends what it owes the store with pauses in between."""
    long, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def job(n: int) -> None:
        if n:
            long.set()
            await go_on.wait()
        else:
            await long.wait()
            broken.error = StoreDamaged("the store is damaged")

    broken = Broken(await app.store())
    loop = asyncio.get_running_loop()
    app._stores[loop][app.url] = broken
    await app.enqueue_many([job.call(0), job.call(1)])
    worker = Worker(app, grace=1.0)
    await worker.run()
    go_on.set()
    app._stores[loop][app.url] = broken._store
    assert broken.settles < 20


@pytest.mark.slow
async def test_the_last_try_of_a_worker_that_ends_at_once_is_no_busy_loop(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that ends at once tries to settle for ten seconds more, with pauses in between."""
    begun = asyncio.Event()

    @app.task
    async def job() -> None:
        begun.set()
        await asyncio.sleep(60)

    broken = Broken(await app.store())
    loop = asyncio.get_running_loop()
    app._stores[loop][app.url] = broken
    await job.enqueue()
    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 5)
    broken.error = StoreUnavailable("away")
    caplog.set_level(logging.CRITICAL)
    worker.stop(at_once=True)
    await asyncio.sleep(1.0)
    asked = broken.settles
    broken.error = None
    await running
    app._stores[loop][app.url] = broken._store
    assert asked < 50
