"""What an adversarial reader found in limits and batches: each stays closed."""

import asyncio
from typing import Any

import pytest
from support.waiting import until_async
from support.work import burst

from unstuck import Rate, Unstuck, Worker, current_job
from unstuck.errors import Permanent
from unstuck.limits import Limits
from unstuck.policy import Policy
from unstuck.prefetch import MOST
from unstuck.testing import SQLiteHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def ends(running: asyncio.Task[Any], seconds: float) -> bool:
    done, _ = await asyncio.wait([running], timeout=seconds)
    return bool(done)


async def test_a_batch_that_lost_all_its_leases_is_cancelled(app: Unstuck) -> None:
    """Slots.lose() counts leases that are lost already among the "others", so nobody cancels the handler.

    It keeps its slot for as long as it likes, for jobs that are cancelled or that somebody else runs.
    """
    begun, ended = asyncio.Event(), asyncio.Event()

    @app.batch(2, lease=60.0, heartbeat=0.1)
    async def work(items: list[int]) -> list[None]:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return [None] * len(items)

    handles = await app.enqueue_many([work.call(n) for n in range(2)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 20)
    for handle in handles:
        await handle.cancel()
    try:
        await asyncio.wait_for(ended.wait(), 20)
    finally:
        worker.stop(at_once=True)
        await running


async def test_one_by_one_leaves_out_jobs_whose_lease_is_lost(app: Unstuck) -> None:
    """A batch that failed as a whole is run one by one, also those jobs that were cancelled meanwhile."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    alone: list[int] = []

    @app.batch(3, lease=60.0, heartbeat=0.1)
    async def work(items: list[int]) -> list[None]:
        if len(items) > 1:
            begun.set()
            await go_on.wait()
            raise Permanent("one of them is bad")
        alone.extend(items)
        return [None]

    handles = await app.enqueue_many([work.call(n) for n in range(3)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 20)
    await handles[1].cancel()
    await worker._pulse.confirm()  # a beat more: the worker knows
    go_on.set()
    await until_async(lambda: _true(len(alone) >= 2), 20, "the others to run")
    await asyncio.sleep(0.2)
    worker.stop()
    await running
    assert alone == [0, 2]


async def _true(value: bool) -> bool:
    return value


async def test_one_by_one_needs_tokens_too(app: Unstuck) -> None:
    """Two requests a minute are allowed; a batch that fails for good makes six at once."""
    calls: list[int] = []

    @app.batch(5, rate=Rate(2, per=60))
    async def work(items: list[int]) -> list[None]:
        calls.append(len(items))
        if len(items) > 1:
            raise Permanent("one of them is bad")
        return [None]

    await app.enqueue_many([work.call(n) for n in range(5)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(1.0)
    worker.stop(at_once=True)
    await running
    assert len(calls) <= 2


async def test_batches_are_leased_ahead_by_what_was_consumed(app: Unstuck) -> None:
    """room() counts jobs, _tokens() multiplies it by the batch size: thousands of jobs are held for two slots.

    DESIGN 5: prefetch is at most what the last 200 ms consumed.
    """

    @app.batch(50)
    async def work(items: list[int]) -> list[None]:
        await asyncio.sleep(0.02)
        return [None] * len(items)

    await app.enqueue_many([work.call(n) for n in range(8000)])
    worker = Worker(app, concurrency=2, grace=0.1)
    running = asyncio.create_task(worker.run())
    most = 0
    for _ in range(100):
        await asyncio.sleep(0.02)
        if hasattr(worker, "_slots"):
            most = max(most, len(worker._slots.held))
    worker.stop(at_once=True)
    await running
    assert most <= 2 * 50 + MOST + 2 * 50


async def test_an_idle_worker_of_a_rated_queue_starts_a_new_job_soon(app: Unstuck) -> None:
    """After an empty lease the queue is quiet for 50 ms; the wait begun in them watches no queue at all, for 5 s."""
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
    """A queue that is quiet, because it had nothing 50 ms ago, is not asked again before a burst ends."""
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
    """lease_first() takes a token for each job; a batch uses one of them, and the others are gone."""
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
    """Whoever asks while another one holds all tokens for a moment stays away for the whole interval."""
    queues = {"default": Policy(rate=Rate(10, per=60.0))}
    one, other = Limits(harness.store, queues), Limits(harness.store, queues)
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
    """The slack never grows beyond the interval: every ticket is too old, everything is given back, for ever."""
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


async def test_a_quota_that_is_exhausted_stops_what_was_leased_ahead(app: Unstuck) -> None:
    """The queue is paused, but jobs of it that are waiting here are started, each with a request that is refused."""
    from unstuck.errors import QuotaExhausted

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
        [counts] = await jobs.store.count()
        return counts.paused is not None

    await until_async(paused, 60, "the pause")
    await asyncio.sleep(0.3)
    worker.stop()
    await running
    assert refused <= 2


async def test_queues_that_share_a_bucket_do_not_starve_each_other(app: Unstuck) -> None:
    """The first queue takes all tokens of the bucket, though it has no jobs; the second one gets none and stays away.

    When it comes back the first has taken them again: its jobs are never started.
    """
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


async def test_a_refusal_stops_what_is_being_leased(app: Unstuck) -> None:
    """A lease that was under way when the other side refused us brings jobs that are started all the same."""
    from unstuck.errors import RateLimited

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
