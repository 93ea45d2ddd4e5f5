"""The worker, in this process: how it begins, recovers, outlives an outage and ends."""

import asyncio
import logging
import threading
from itertools import pairwise
from statistics import median
from typing import Any

import msgspec
import pytest
from support.spy import spied
from support.waiting import until_async
from support.work import at_work, burst

from unstuck import (
    Call,
    Critical,
    Handle,
    JobFailed,
    Jobs,
    Rate,
    Status,
    StoreUnavailable,
    Unstuck,
    Worker,
    current_job,
)
from unstuck.protocol.leases import Share
from unstuck.protocol.store import Store
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import states, workers_of

pytestmark = pytest.mark.anyio


async def ended(running: asyncio.Task[None]) -> None:
    async with asyncio.timeout(20):
        await running


async def stop(worker: Worker, running: asyncio.Task[None]) -> None:
    worker.stop()
    await ended(running)


async def begun(app: Unstuck, *, grace: float) -> tuple[Handle[None], Worker, asyncio.Task[None]]:
    """A job that never ends by itself, and a worker that has begun it."""
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await endless.enqueue()
    worker = Worker(app, grace=grace)
    running = asyncio.create_task(worker.run())
    await started.wait()
    return handle, worker, running


@pytest.mark.accepts("REC-009", "REC-010")
async def test_lost_jobs_are_recovered_before_any_work_is_taken(app: Unstuck, harness: SQLiteHarness) -> None:
    order: list[str] = []

    @app.task
    async def job(name: str) -> None:
        order.append(name)

    await job.enqueue("lost")
    await harness.store.lease({"default": Share(5.0, 1)}, 1, "crashed worker")
    await job.enqueue("new")
    await harness.age(10)
    await burst(app, concurrency=1)

    assert order == ["lost", "new"]


@pytest.mark.accepts("REC-011")
async def test_a_running_worker_goes_on_recovering_by_itself(app: Unstuck, harness: SQLiteHarness) -> None:
    @app.task
    async def job() -> None: ...

    @app.task(queue="theirs")
    async def their_job() -> None: ...

    worker = Worker(app, queues=["default"], recovery=0.5)
    running = asyncio.create_task(worker.run())
    await until_async(lambda: workers_of(harness.store), 10, "the worker to be there")

    async def recovered() -> bool:
        return (await (await app.jobs()).get(lost.id)).status is Status.PENDING

    for which in ("first", "second"):  # the first may have been found at the start
        await their_job.enqueue()
        [lost] = await harness.store.lease({"theirs": Share(1.0, 1)}, 1, "crashed worker")
        await harness.age(120)
        await until_async(recovered, 20, f"the {which} lost job to come back")
    await stop(worker, running)


@pytest.mark.accepts("REC-006", "REC-007", "REC-078")
async def test_each_worker_recovers_every_interval_and_reports_how_many_each_time(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def job() -> None: ...

    assert Worker(app).recovery == 60.0
    caplog.set_level(logging.INFO, "unstuck.reaper")
    book, every = await spied(app), 0.5
    async with at_work(app, recovery=every) as one, at_work(app, recovery=every) as other:

        def runs(worker: Worker) -> list[float]:
            """When it looked; the look at its start is the first."""
            asked = [asked for asked in list(book.asked) if asked.name == "reclaim"]
            return [asked.at for asked in asked if asked.args[0].owner == f"reaper-{worker.id}"]

        await until_async(lambda: min(len(runs(one)), len(runs(other))) >= 5, 20, "five runs of each")
        for worker in (one, other):
            pauses = [after - before for before, after in pairwise(runs(worker)[:5])]
            assert min(pauses) >= 0.9 * every
            assert median(pauses) < 2 * every

        def told() -> list[int]:
            return [vars(record)["recovered"] for record in caplog.records if record.name == "unstuck.reaper"]

        def all_told() -> bool:
            return told() == [0] * (len(runs(one)) + len(runs(other)))

        await until_async(all_told, 5, "a word about each run")


@pytest.mark.accepts("REC-008", "REC-060")
async def test_a_worker_whose_recovery_fails_works_on_and_recovers_later(
    app: Unstuck, harness: SQLiteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def job() -> str:
        return "done"

    lost = await job.enqueue()
    await harness.store.lease({"default": Share(5.0, 1)}, 1, "crashed worker")
    await harness.age(10)
    book = await spied(app)
    book.fails["reclaim"] = RuntimeError("a mistake of ours")
    async with at_work(app, recovery=0.3):
        assert await (await job.enqueue()).result(10) == "done"
        book.fails["reclaim"] = StoreUnavailable("it is away")
        await until_async(lambda: "it is away" in caplog.text, 10, "the next run")
        book.fails["reclaim"] = RuntimeError("another mistake")
        await until_async(lambda: "another mistake" in caplog.text, 10, "the one after it")
        assert "a mistake of ours" in caplog.text
        assert await lost.status() is Status.PROCESSING
        book.fails.clear()
        await harness.age(10)  # what it was blind for is not held against the lost worker
        assert await lost.result(20) == "done"


@pytest.mark.accepts("REC-081")
async def test_what_has_no_token_is_back_at_once_and_what_was_lost_by_the_next_recovery(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    @app.task(rate=Rate(1, per=3600.0))
    async def call() -> None: ...

    @app.task(queue="theirs")
    async def their_call() -> None: ...

    await app.enqueue_many([call.call() for _ in range(4)])
    assert await Worker(app, recovery=0).process_jobs(4) == 1
    assert await states(harness.store, "default") == {"completed": 1, "pending": 3}

    async with at_work(app, queues=["default"]):
        await until_async(lambda: workers_of(harness.store), 10, "the worker to be there")
        await their_call.enqueue()
        await harness.store.lease({"theirs": Share(0.5, 1)}, 1, "crashed")

        async def recovered() -> bool:
            return await states(harness.store, "theirs") == {"pending": 1}

        await until_async(recovered, 10, "the lost job to come back")


async def test_a_stopped_worker_finishes_what_runs_and_gives_back_the_rest(app: Unstuck) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def job() -> None:
        started.set()
        await go_on.wait()

    await app.enqueue_many([job.call() for _ in range(5)])
    worker = Worker(app, concurrency=2)
    running = asyncio.create_task(worker.run())
    await started.wait()
    worker.stop()
    go_on.set()
    await ended(running)

    of = (await (await app.jobs()).counts())[0]
    assert of.processing == 0
    assert of.completed + of.pending == 5
    assert of.completed >= 1


@pytest.mark.accepts("REC-070")
@pytest.mark.parametrize("way", ["stopped", "cancelled", "halted", "broken"])
async def test_no_heartbeat_outlives_the_worker_whichever_way_it_ends(
    app: Unstuck, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def job() -> None:
        raise Critical("the database is corrupt")

    before, threads = asyncio.all_tasks(), set(threading.enumerate())
    worker = Worker(app)
    running = asyncio.create_task(worker.run())

    def heartbeats() -> list[threading.Thread]:
        if len(asyncio.all_tasks() - before) < 3:
            return []
        return [
            thread for thread in set(threading.enumerate()) - threads if thread.name == "unstuck-heartbeat"
        ]

    [heartbeat] = await until_async(heartbeats, 10, "worker, reaper, retention and heartbeat to run")
    if way == "stopped":
        worker.stop()
    elif way == "cancelled":
        running.cancel()
    elif way == "halted":
        await job.enqueue()
    else:
        monkeypatch.setattr(worker._slots, "start", None)  # a bug of ours in the loop
        await job.enqueue()
    await asyncio.wait([running], timeout=20)

    assert running.done()
    await until_async(lambda: not heartbeat.is_alive(), 5, "the heartbeat to end")
    await until_async(lambda: asyncio.all_tasks() <= before, 5, "everything the worker started to end")
    if way == "broken":
        assert isinstance(running.exception(), TypeError)


async def test_a_job_that_outlasts_the_grace_is_given_back_unspent(app: Unstuck) -> None:
    handle, worker, running = await begun(app, grace=0.1)
    await stop(worker, running)

    job = await handle.job()
    assert (job.status, job.attempts, job.owner) == (Status.PENDING, 0, None)


async def test_a_stop_at_once_does_not_wait(app: Unstuck) -> None:
    handle, worker, running = await begun(app, grace=3600)
    worker.stop()
    worker.stop(at_once=True)
    await ended(running)

    assert await handle.status() is Status.PENDING


class _Outage:
    """The worker's store, which can be made to fail as a database that went away does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down = False

    def __getattr__(self, name: str) -> object:
        return self._away if self.down and name != "__aexit__" else getattr(self._store, name)

    async def _away(self, *args: object, **kwargs: object) -> None:
        raise StoreUnavailable("the database is away")


async def test_outcomes_survive_an_outage_of_the_store(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []
    store = await app.store()
    outage = _Outage(store)
    app._stores[asyncio.get_running_loop()][app.url] = outage  # type: ignore[assignment]
    jobs = Jobs(store)

    @app.task
    async def job(number: int) -> None:
        runs.append(number)
        outage.down = True  # the store goes away while the job runs

    await job.enqueue(1)
    worker = Worker(app)
    with caplog.at_level(logging.WARNING):
        running = asyncio.create_task(worker.run())
        await until_async(lambda: "does not answer" in caplog.text, 10, "the worker to notice")
    assert (await jobs.counts())[0].processing == 1
    outage.down = False

    async def completed() -> bool:
        return (await jobs.counts())[0].completed == 1

    await until_async(completed, 20, "the outcome to be written")
    await stop(worker, running)
    assert runs == [1]


async def test_an_outcome_that_cannot_be_stored_fails_its_own_job_only(app: Unstuck) -> None:
    @app.task
    async def fine(number: int) -> int:
        return number

    @app.task
    async def odd() -> None:
        bad = msgspec.structs.replace(fine.call(1).job, priority=99)  # past all checks: the table refuses it
        current_job().then(Call(bad))

    good = [await fine.enqueue(number) for number in range(5)]
    bad = await odd.enqueue()
    await burst(app)

    assert [await handle.result() for handle in good] == [0, 1, 2, 3, 4]
    with pytest.raises(JobFailed, match="CHECK"):
        await bad.result()


async def test_a_lease_whose_answer_was_lost_is_given_back_unspent(
    app: Unstuck, harness: SQLiteHarness
) -> None:
    runs: list[int] = []

    @app.task(lease=600.0, heartbeat=0.1)
    async def job() -> None:
        runs.append(current_job().attempt)

    @app.task(queue="idle", lease=600.0, heartbeat=0.1)
    async def unused() -> None: ...

    worker = Worker(app, queues=["idle"])
    running = asyncio.create_task(worker.run())
    handle = await job.enqueue()
    # As if the worker had asked for it and never got the answer: the store says it is his.
    [lost] = await harness.store.lease({"default": Share(600.0, 1)}, 1, worker.id)

    async def back() -> bool:
        return await handle.status() is Status.PENDING

    await until_async(back, 20, "the lease to be given back")
    await stop(worker, running)
    released = await handle.job()
    await burst(app)
    assert (released.attempts, released.settled_fence) == (0, lost.fence)
    assert runs == [1]


async def test_a_cancelled_worker_gives_back_what_it_holds(app: Unstuck) -> None:
    handle, _, running = await begun(app, grace=3600)
    running.cancel()
    await asyncio.wait([running], timeout=20)

    assert running.cancelled()
    job = await handle.job()
    assert (job.status, job.attempts) == (Status.PENDING, 0)


async def test_a_worker_waits_for_a_store_that_is_not_there_yet(app: Unstuck) -> None:
    @app.task
    async def job() -> None: ...

    handle = await job.enqueue()
    attempts = 0

    async def ailing() -> Store:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise StoreUnavailable("not yet")
        return await Unstuck.store(app)

    app.store = ailing  # type: ignore[method-assign]
    await burst(app)

    assert attempts == 3
    assert await handle.status() is Status.COMPLETED


@pytest.mark.slow
async def test_a_lease_answer_that_comes_while_the_worker_closes_and_after_it_was_given_back_is_dropped(
    app: Unstuck,
) -> None:
    """Jobs that come when the worker has closed, and that were given back already, start nothing and raise nothing."""
    asked, answer = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @app.task(lease=600, heartbeat=0.05)
    async def job() -> None:
        runs.append(1)

    store = await app.store()

    class Late:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def lease(self, *args: Any, **kwargs: Any) -> Any:
            jobs = await store.lease(*args, **kwargs)
            if jobs:
                asked.set()
                await answer.wait()
            return jobs

    handle = await job.enqueue()
    loop = asyncio.get_running_loop()
    app._stores[loop][app.url] = Late()
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        await asked.wait()
        await until_async(lambda: worker._held._disowned, 20, "the lease to be given back")
        worker.stop()
        await until_async(lambda: worker._slots._closed, 20, "the worker to close")
        answer.set()
        await running
    app._stores[loop][app.url] = store

    found = await handle.job()
    assert (runs, found.status, found.attempts) == ([], Status.PENDING, 0)
