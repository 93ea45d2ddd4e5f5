"""The worker, in this process: how it begins, recovers, outlives an outage and ends."""

import asyncio
import inspect
import logging

import msgspec
import pytest
from support.waiting import until_async
from support.work import burst

from unstuck import Call, JobFailed, Jobs, Status, StoreUnavailable, Unstuck, Worker, current_job
from unstuck.store import Share, Store
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio


async def stop(worker: Worker, running: asyncio.Task[None]) -> None:
    worker.stop()
    async with asyncio.timeout(20):
        await running


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


@pytest.mark.accepts("REC-006", "REC-011", "REC-080")
async def test_a_running_worker_goes_on_recovering_by_itself(app: Unstuck, harness: SQLiteHarness) -> None:
    @app.task
    async def job() -> None: ...

    @app.task(queue="theirs")
    async def their_job() -> None: ...

    # Recovery is on, and every minute, unless one says otherwise.
    assert inspect.signature(Worker).parameters["recovery"].default == 60.0
    worker = Worker(app, queues=["default"], recovery=0.5)
    running = asyncio.create_task(worker.run())
    await until_async(harness.store.workers, 10, "the worker to be past its start")
    await their_job.enqueue()
    [lost] = await harness.store.lease({"theirs": Share(1.0, 1)}, 1, "crashed worker")

    async def recovered() -> bool:
        return (await (await app.jobs()).get(lost.id)).status is Status.PENDING

    await harness.age(120)
    await until_async(recovered, 20, "the lost job to come back")
    await stop(worker, running)


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
@pytest.mark.parametrize("way", ["stopped", "cancelled", "broken"])
async def test_no_heartbeat_outlives_the_worker_whichever_way_it_ends(
    app: Unstuck, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def job() -> None: ...

    before = asyncio.all_tasks()
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    await until_async(lambda: len(asyncio.all_tasks() - before) >= 3, 10, "worker, pulse and reaper to run")
    if way == "stopped":
        worker.stop()
    elif way == "cancelled":
        running.cancel()
    else:
        monkeypatch.setattr(worker._slots, "start", None)  # a bug of ours in the loop
        await job.enqueue()
    await asyncio.wait([running], timeout=20)

    assert running.done()
    await until_async(lambda: asyncio.all_tasks() <= before, 5, "everything the worker started to end")
    if way == "broken":
        assert isinstance(running.exception(), TypeError)


async def ended(running: asyncio.Task[None]) -> None:
    async with asyncio.timeout(20):
        await running


async def test_a_job_that_outlasts_the_grace_is_given_back_unspent(app: Unstuck) -> None:
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await endless.enqueue()
    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    await started.wait()
    await stop(worker, running)

    job = await handle.job()
    assert (job.status, job.attempts, job.owner) == (Status.PENDING, 0, None)


async def test_a_stop_at_once_does_not_wait(app: Unstuck) -> None:
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await endless.enqueue()
    worker = Worker(app, grace=3600)
    running = asyncio.create_task(worker.run())
    await started.wait()
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
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await endless.enqueue()
    running = asyncio.create_task(Worker(app, grace=3600).run())
    await started.wait()
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
