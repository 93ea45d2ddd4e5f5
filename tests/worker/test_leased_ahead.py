"""Jobs that a busy worker leased ahead: one that has waited elsewhere before does not wait for it, too."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from support.waiting import until_async
from support.work import at_work

from unstuck import Handle, Status, Task, Unstuck, Worker
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import released
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import leased, look
from unstuck.worker.prefetch import MOST

pytestmark = pytest.mark.anyio


class Work:
    """Two tasks of an app: a quick one, and a long one that runs until it may go on."""

    def __init__(self, app: Unstuck) -> None:
        self.app = app
        self.go_on, self.running = asyncio.Event(), asyncio.Event()

        @app.task
        async def quick() -> None: ...

        @app.task
        async def long() -> None:
            self.running.set()
            await self.go_on.wait()

        self.quick, self.long = quick, long

    @asynccontextmanager
    async def one_at_a_time(self) -> AsyncIterator[Worker]:
        """A worker with one slot, which has consumed so much that it leases ahead."""
        async with at_work(self.app, concurrency=1) as worker:
            for handle in await self.app.enqueue_many([self.quick.call() for _ in range(20)]):
                await handle.result(20)
            yield worker


@pytest.fixture
def work(app: Unstuck, monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr("unstuck.worker.prefetch.WINDOW", 3600.0)  # what was consumed counts for an hour
    return Work(app)


async def put_in_line(harness: SQLiteHarness, *tasks: Task[..., None]) -> list[Handle[None]]:
    """Jobs that come together, the first of which somebody had before and gave back."""
    await harness.store.pause("default", "to make ready")
    first, *others = [await task.enqueue() for task in tasks]
    harness.rows("UPDATE job SET settled = 'released', settled_fence = 1 WHERE id = ?", (first.id,))
    await harness.store.pause("default", None)
    return [first, *others]


class Leases:
    """Whether a worker asked for new jobs only, and how many it got. Once that was in vain it would sleep for an hour."""

    def __init__(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[bool, int]] = []
        self._leasing = worker._leasing
        self._lease = worker._store.lease
        monkeypatch.setattr(worker._store, "lease", self.lease)

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        jobs = await self._lease(queues, limit, owner)
        self.made.append((queues["default"].only_new, len(jobs)))
        if await self.in_vain():
            self._leasing._in_vain = 40  # doublings of the pause
        return jobs

    async def in_vain(self) -> bool:
        return (True, 0) in self.made


async def test_a_job_that_was_given_back_before_is_left_to_others_by_a_worker_without_a_free_slot(
    work: Work, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstuck.worker.held_leases.HOARD", 3600.0)
    monkeypatch.setattr("unstuck.worker.prefetch.REST", 3600.0)

    async with work.one_at_a_time() as busy:
        urgent = work.long.options(priority=9)
        given_back, fresh, _ = await put_in_line(harness, work.quick, work.quick, urgent)
        await work.running.wait()

        async def left() -> bool:
            theirs = await look(harness.store, fresh.ref)
            mine = await look(harness.store, given_back.ref)
            return theirs.owner == busy.id and mine.status is Status.PENDING and mine.fence > 0

        await until_async(left, 20, "the one to be given back, the other to be kept")
        [again] = await leased(harness.store, 5, queue="default")
        assert again.id == given_back.id
        await harness.store.settle([released(again.lease)])
        async with at_work(work.app):
            await given_back.result(20)
        assert not work.go_on.is_set()
        work.go_on.set()
        await fresh.result(20)


async def test_a_worker_without_a_free_slot_leases_only_jobs_that_nobody_had_before(
    work: Work, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstuck.worker.held_leases.HOARD", 3600.0)
    monkeypatch.setattr("unstuck.worker.held_leases.SOON", 3600.0)

    async with work.one_at_a_time() as busy:
        await work.long.enqueue()
        await work.running.wait()
        given_back, fresh = await put_in_line(harness, work.quick, work.quick)

        async def taken() -> bool:
            return (await look(harness.store, fresh.ref)).owner == busy.id

        await until_async(taken, 20, "the busy worker to lease what nobody had before")
        assert (await look(harness.store, given_back.ref)).fence == 0, "it was leased"
        async with at_work(work.app) as other:
            await given_back.result(20)
            done = await look(harness.store, given_back.ref)
        assert (done.status, done.attempts) == (Status.COMPLETED, 1)
        assert busy.id != other.id
        assert not work.go_on.is_set()
        work.go_on.set()
        await fresh.result(20)


async def test_a_slot_that_comes_free_is_filled_at_once_with_what_was_left_to_others(
    work: Work, harness: SQLiteHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstuck.worker.leasing.LONGEST_IN_VAIN", 3600.0)

    async with work.one_at_a_time() as only:
        await work.long.enqueue()
        await work.running.wait()
        leases = Leases(only, monkeypatch)
        [given_back] = await put_in_line(harness, work.quick)
        await until_async(leases.in_vain, 20, "the worker to ask for new jobs in vain")

        work.go_on.set()
        await given_back.result(20)

    assert (False, 1) in leases.made


@pytest.mark.slow
async def test_batches_are_leased_ahead_by_what_was_consumed(app: Unstuck) -> None:
    """At most what the last 200 ms consumed is leased ahead, counted in jobs: the size of a batch does not multiply it."""

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
            most = max(most, len(worker._held))
    worker.stop(at_once=True)
    await running
    assert most <= 2 * 50 + MOST + 2 * 50
