"""A store that goes away and comes back, and what a worker says of itself meanwhile."""

import asyncio
import logging
import time

import pytest
from support.spy import Book, spied
from support.waiting import until_async
from support.work import at_work

from unstuck import Jobs, Retry, Status, StoreUnavailable, Unstuck, current_job
from unstuck.handle import Handle
from unstuck.model import Worker as Facts
from unstuck.reaper import Reaper
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import states

pytestmark = pytest.mark.anyio
AWAY = StoreUnavailable("the database is away")


async def beaten(harness: SQLiteHarness, since: float) -> bool:
    workers: list[Facts] = await harness.store.workers()
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
        await worker._pulse.confirm()
        status = await jobs.get_health_status()
        assert (status.status, status.consecutive_failures) == ("HEALTHY", 4)
        assert not [record for record in caplog.records if record.name == "unstuck.health"]

        await failed(1)
        await worker._pulse.confirm()
        status = await jobs.get_health_status("default")
        assert (status.status, status.consecutive_failures) == ("DEGRADED", 5)
        assert (status.success_rate, status.patterns) == (0.0, {"ConnectionResetError": 5})
        [warning] = [record for record in caplog.records if record.name == "unstuck.health"]
        assert (warning.levelno, vars(warning)["consecutiveFailures"]) == (logging.WARNING, 5)

        await (await work.enqueue(True)).result(10)
        await worker._pulse.confirm()
        status = await jobs.get_health_status()
        assert (status.status, status.consecutive_failures, status.patterns) == ("HEALTHY", 0, {})
        assert status.last_success is not None
        assert "recovered: a job succeeded after 5 failures in a row" in caplog.messages
