"""Limits on how many jobs run at a time, over all workers, and fairness between lanes."""

import asyncio
import time
from collections import Counter

import pytest
from support.spy import spied
from support.waiting import until_async
from support.work import at_work

from unstuck import Unstuck, current_job
from unstuck.app.task import QueueOptions
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import counts

pytestmark = pytest.mark.anyio


async def all_done(harness: SQLiteHarness, total: int) -> None:
    async def done() -> bool:
        return (await counts(harness.store, "default")).completed == total

    await until_async(done, 20, f"all {total} jobs to be done")


async def test_three_workers_together_stay_within_the_limit_of_a_queue(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    now = most = 0

    @app.task(limit=2)
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    await app.enqueue_many([work.call() for _ in range(30)])
    async with at_work(app), at_work(app), at_work(app):
        await all_done(harness, 30)
    assert most == 2


async def test_a_flood_of_one_lane_leaves_room_for_the_others(app: Unstuck, harness: SQLiteHarness) -> None:
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    order: list[str] = []

    @app.task(lane_limit=2)
    async def work() -> None:
        lane = current_job().job.lane or ""
        now[lane] += 1
        most[lane] = max(most[lane], now[lane])
        await asyncio.sleep(0.005)
        now[lane] -= 1
        order.append(lane)

    flood = work.options(lane="flood")
    await app.enqueue_many([flood.call() for _ in range(200)])
    async with at_work(app, concurrency=4), at_work(app, concurrency=4):
        await until_async(lambda: len(order) >= 20, 10, "the flood to run")
        began = len(order)
        await app.enqueue_many([work.options(lane=f"small {number}").call() for number in range(5)])
        await all_done(harness, 205)

    assert most["flood"] == 2
    positions = [at for at, lane in enumerate(order) if lane.startswith("small")]
    assert len(positions) == 5
    assert max(positions) - began < 100  # although far more of the flood were there before them


@pytest.mark.parametrize("options", [QueueOptions(limit=1), QueueOptions(lane_limit=1)], ids=str)
async def test_jobs_that_a_limit_keeps_back_are_not_asked_for_all_the_time(
    app: Unstuck, harness: SQLiteHarness, options: QueueOptions
) -> None:
    go_on, started = asyncio.Event(), []

    @app.task(**options)
    async def work() -> None:
        started.append(time.monotonic())
        await go_on.wait()

    await app.enqueue_many([work.options(lane="one").call() for _ in range(50)])
    book = await spied(app)
    async with at_work(app), at_work(app):
        await until_async(lambda: started, 10, "the first job")
        await asyncio.sleep(2.0)
        assert len(started) == 1
        # By two workers in two seconds: about four a second each, and some more at first.
        assert len(book.of("lease")) < 48
        freed = time.monotonic()
        go_on.set()
        await until_async(lambda: len(started) > 1, 10, "the next job")
        assert started[1] - freed < 3.0  # it did not wait for its next look by itself, 5 s later
        await all_done(harness, 50)
