"""Queues with a rate: their jobs are found soon, nothing is leased or held in vain, and none of them starves."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from support.spy import spied
from support.waiting import until_async
from support.work import burst

from unstuck import Rate, Unstuck, Worker, current_job
from unstuck.config.policy import Policy
from unstuck.protocol.job import Ending
from unstuck.testing import SQLiteHarness
from unstuck.worker.rate_limits import RateLimits

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def _true(value: bool) -> bool:
    return value


async def test_an_idle_worker_of_a_rated_queue_starts_a_new_job_soon(app: Unstuck) -> None:
    """A queue that had nothing is left alone for 50 ms; a wait that begins within them watches it nevertheless."""
    started = asyncio.Event()

    @app.task(rate=Rate(100, per=1.0))
    async def job() -> None:
        started.set()

    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(1.0)
    await job.enqueue()
    try:
        await asyncio.wait_for(started.wait(), 3.5)
    finally:
        worker.stop(at_once=True)
        await running


async def test_burst_runs_follow_ups_of_a_rated_queue(app: Unstuck) -> None:
    """A queue that is left alone, because it had nothing 50 ms ago, is asked again before a burst ends."""
    ran: list[int] = []

    @app.task(rate=Rate(100, per=1.0))
    async def job(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0.02)
        if n < 3:
            current_job().then(job.call(n + 1))

    await job.enqueue(0)
    await burst(app)
    assert ran == [0, 1, 2, 3]


async def test_process_jobs_gives_tokens_back_that_it_did_not_use(app: Unstuck) -> None:
    """A batch uses one token however many jobs it has: those taken for its other jobs are given back."""
    sizes: list[int] = []

    @app.batch(5, rate=Rate(5, per=60))
    async def work(items: list[int]) -> list[None]:
        sizes.append(len(items))
        return [None] * len(items)

    worker = Worker(app)
    for _ in range(2):
        await app.enqueue_many([work.call(n) for n in range(5)])
        await worker.process_jobs(5)
    assert sizes == [5, 5]


async def test_tokens_that_come_back_early_are_found_by_others(harness: SQLiteHarness) -> None:
    """A process that asks while another one holds all tokens for a moment asks again long before the interval is over."""
    queues = {"default": Policy(rate=Rate(10, per=60.0))}
    one, other = RateLimits(harness.store, queues), RateLimits(harness.store, queues)
    assert await one.take(["default"], 10) == {"default": 10}
    assert await other.take(["default"], 10) == {"default": 0}
    await one.give_back()  # there was no job for them
    assert other.next_open() is not None
    assert (other.next_open() or 0.0) <= 5.0


class Slow:
    """A store whose leases take a while, as across an ocean."""

    def __init__(self, store: Any, seconds: float) -> None:
        self._store, self._seconds = store, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def lease(self, *args: Any) -> Any:
        answer = await self._store.lease(*args)
        await asyncio.sleep(self._seconds)
        return answer


async def test_a_store_slower_than_the_interval_does_not_stop_a_rated_queue(app: Unstuck) -> None:
    """A token that is older than its interval only because the store is slow still starts a job."""
    ran: list[int] = []

    @app.task(rate=Rate(5, per=0.1))
    async def job() -> None:
        ran.append(1)

    await app.enqueue_many([job.call() for _ in range(5)])
    slow = Slow(await app.store(), 0.15)
    app._stores[asyncio.get_running_loop()][app.url] = slow
    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    try:
        await until_async(lambda: _true(bool(ran)), 20, "a job to be started")
    finally:
        worker.stop(at_once=True)
        await running
        app._stores[asyncio.get_running_loop()][app.url] = slow._store


async def test_queues_that_share_a_bucket_do_not_starve_each_other(app: Unstuck) -> None:
    """A queue without jobs gives the tokens of a shared bucket to the one that has some, in time for it to start."""
    ran = asyncio.Event()

    @app.task(queue="first", rate=Rate(5, per=0.5, bucket="provider"))
    async def never() -> None: ...

    @app.task(queue="second", rate=Rate(5, per=0.5, bucket="provider"))
    async def job() -> None:
        ran.set()

    await job.enqueue()
    worker = Worker(app, concurrency=10, grace=0.1)
    running = asyncio.create_task(worker.run())
    try:
        await asyncio.wait_for(ran.wait(), 20)
    finally:
        worker.stop(at_once=True)
        await running


async def test_a_rate_that_allows_all_has_nothing_leased_in_vain(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More jobs than begin in one turn of the loop have tokens and slots: none of them is given back."""
    for bound in ("LEAST", "MOST"):
        monkeypatch.setattr(
            f"unstuck.worker.rate_limits.{bound}", 60.0
        )  # no token waits too long on a busy machine

    @app.task(rate=Rate(1_000_000, per=60))
    async def work() -> None:
        await asyncio.sleep(0.01)

    await app.enqueue_many([work.call() for _ in range(300)])
    book = await spied(app)
    await Worker(app, burst=True, concurrency=100).run()

    words = Counter(outcome.ending for call in book.of("settle") for outcome in call.args[0])
    assert words == {Ending.COMPLETED: 300}
