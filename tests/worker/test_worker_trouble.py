"""What handlers and cancellations can do to a worker, and must not."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pydantic
import pytest
from support.folders import IMPORTABLE
from support.ledger import Ledger
from support.processes import Child
from support.waiting import until, until_async
from support.work import burst

from unstuck import Filter, JobFailed, Status, Unstuck, Worker, current_job, open_store
from unstuck.protocol.leases import Share
from unstuck.recovery.reaper import Reaper
from unstuck.stores.sqlite.wakeup import SQLiteWakeup
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased, look

pytestmark = pytest.mark.anyio


class Progress(pydantic.BaseModel):
    done: int = 1


async def test_a_thread_that_raises_stop_iteration_fails_its_job(app: Unstuck) -> None:
    @app.task(retry=1)
    def empty() -> object:
        return next(iter([]))

    handle = await empty.enqueue()
    async with asyncio.timeout(10):
        await burst(app)

    with pytest.raises(JobFailed, match="StopIteration"):
        await handle.result()


def mutated() -> None:
    facts: dict[str, object] = {}
    current_job().progress(facts)
    facts["later"] = object()


@pytest.mark.parametrize(
    "say",
    [
        lambda: current_job().progress(Progress()),
        lambda: current_job().stage(object()),  # type: ignore[arg-type]
        lambda: current_job().stage("\ud800"),
        mutated,
    ],
    ids=["a model", "no text", "half a character", "changed later"],
)
async def test_what_one_job_reports_does_not_stop_the_heartbeats_of_others(
    app: Unstuck, say: Callable[[], None], harness: SQLiteHarness
) -> None:
    said, go_on = asyncio.Event(), asyncio.Event()

    @app.task(lease=600.0, heartbeat=0.05)
    async def odd() -> None:
        said.set()
        say()
        await go_on.wait()

    await odd.enqueue()
    running = asyncio.create_task(burst(app))
    await said.wait()

    async def beaten_since() -> bool:
        [worker] = (await harness.store.fleet()).workers
        return worker.seen_at is not None and worker.seen_at.timestamp() > then

    then = time.time()
    await until_async(beaten_since, 10, "a heartbeat after what was said")
    go_on.set()
    await running


@pytest.mark.parametrize("way", ["a huge number", "a task for a call", "cancels itself"])
async def test_whatever_goes_wrong_around_a_handler_costs_its_attempt(app: Unstuck, way: str) -> None:
    runs = 0

    @app.task(retry=1)
    async def odd() -> Any:
        nonlocal runs
        runs += 1
        if way == "a huge number":
            return 10**5000
        if way == "a task for a call":
            current_job().then(odd)  # type: ignore[arg-type]
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(1)
        return None

    handle = await odd.enqueue()
    async with asyncio.timeout(10):
        await burst(app)

    job = await handle.job()
    assert (runs, job.status, job.attempts) == (1, Status.FAILED, 1)


async def test_jobs_leased_ahead_are_given_back_when_long_ones_come_in_between(app: Unstuck) -> None:
    go_on = asyncio.Event()

    @app.task
    async def short() -> None: ...

    @app.task
    async def long() -> None:
        await go_on.wait()

    await app.enqueue_many([short.call() for _ in range(2000)])
    await app.enqueue_many([long.call() for _ in range(2)])
    later = await app.enqueue_many([short.call() for _ in range(300)])
    hoarder = Worker(app, concurrency=2)
    running = asyncio.create_task(hoarder.run())
    jobs = await app.jobs()

    async def only_the_long_ones() -> bool:
        [counts] = await jobs.counts()
        return (counts.completed, counts.processing) == (2000, 2)

    await until_async(only_the_long_ones, 60, "the waiting jobs to be given back")
    assert {(await jobs.get(handle.id)).attempts for handle in later[::50]} == {0}
    go_on.set()
    hoarder.stop()
    await running


async def test_a_thread_that_cannot_be_stopped_keeps_its_place(app: Unstuck) -> None:
    release, started = threading.Event(), threading.Event()

    @app.task(lease=600.0, heartbeat=0.05)
    def stubborn() -> None:
        started.set()
        release.wait(30)

    first = await stubborn.enqueue()
    worker = Worker(app, concurrency=1)
    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(started.wait, 10)
    await first.cancel()
    second = await stubborn.enqueue()
    await asyncio.sleep(0.5)  # ten beats: time enough to take it wrongly

    assert await second.status() is Status.PENDING
    release.set()
    await second.result(10)
    worker.stop()
    await running


async def test_a_worker_goes_on_looking_after_an_error_of_the_driver(
    app: Unstuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def job() -> None: ...

    failures = [apsw.IOError("disk I/O error"), RuntimeError("a mistake of ours")]
    look_ = SQLiteWakeup._look

    def failing(self: SQLiteWakeup, wanted: set[str], seen: tuple[int, int]) -> Any:
        if failures:
            raise failures.pop()
        return look_(self, wanted, seen)

    monkeypatch.setattr(SQLiteWakeup, "_look", failing)
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    await until_async(lambda: not failures, 10, "both failures")
    handle = await job.enqueue()

    await handle.result(10)
    worker.stop()
    await running


@pytest.mark.parametrize("moment", range(8))
async def test_a_worker_cancelled_at_any_moment_leaves_no_lease(app: Unstuck, moment: int) -> None:
    @app.task(retry=1)
    async def job() -> None: ...

    await app.enqueue_many([job.call() for _ in range(400)])
    running = asyncio.create_task(Worker(app, concurrency=20).run())
    await asyncio.sleep(0.003 * moment)
    running.cancel()
    await asyncio.wait([running], timeout=20)

    [counts] = await (await app.jobs()).counts()
    assert (counts.processing, counts.failed) == (0, 0)


async def test_a_record_that_is_no_text_is_put_aside(harness: SQLiteHarness) -> None:
    [bad, good] = await enqueued(harness.store, 2)
    harness.rows("UPDATE job SET payload = CAST(x'7b22ff227d' AS TEXT) WHERE id = ?", (bad.id,))

    assert [job.ref for job in await leased(harness.store, 5)] == [good]
    assert (await look(harness.store, bad)).status is Status.FAILED
    assert len((await harness.store.find(Filter())).jobs) == 2


async def test_a_store_that_fails_to_open_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: object) -> None:
        raise apsw.IOError("disk I/O error")

    monkeypatch.setattr(SQLiteWakeup, "__init__", failing)
    before = set(threading.enumerate())
    for _ in range(3):
        with pytest.raises(Exception, match="I/O"):
            await open_store(f"sqlite:///{tmp_path}/jobs.db").__aenter__()

    def ours() -> list[str]:
        return [
            thread.name
            for thread in set(threading.enumerate()) - before
            if thread.name.startswith("unstuck-")
        ]

    await until_async(lambda: not ours(), 10, "the threads of stores that did not open to end")


@pytest.mark.slow
async def test_a_handler_that_ignores_its_cancellation_does_not_keep_the_process(
    harness: SQLiteHarness, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    (tmp_path / "deaf_app.py").write_text(
        "import asyncio, os\n"
        "from support.ledger import Ledger\n"
        "from unstuck import Unstuck, current_job\n"
        "app = Unstuck(os.environ['UNSTUCK_STORE'])\n"
        "@app.task\n"
        "async def deaf() -> None:\n"
        "    Ledger.from_env().begin(current_job().id, 1)\n"
        "    while True:\n"
        "        try:\n"
        "            await asyncio.sleep(60)\n"
        "        except asyncio.CancelledError:\n"
        "            pass\n"
    )
    env = {"UNSTUCK_STORE": harness.url, "PYTHONPATH": IMPORTABLE, **ledger.env()}
    command = [str(Path(sys.executable).parent / "unstuck"), "worker", "deaf_app:app", "--grace", "0.1"]
    await enqueued(harness.store, queue="default")
    harness.rows("UPDATE job SET task = 'deaf', payload = '{}'")
    with Child(command, tmp_path / "log", env=env, cwd=tmp_path) as child:
        until(ledger.runs, 20, "the handler to run", child.log)
        child.terminate()

        assert child.wait(20) == 0
    [job] = (await harness.store.find(Filter())).jobs
    assert (job.status, job.attempts) == (Status.PENDING, 0)


async def test_a_lease_granted_after_a_quiet_pass_is_recovered_soon_after_its_end(
    harness: SQLiteHarness,
) -> None:
    """With an interval of an hour, and nothing to see at the reaper's first look."""
    running = asyncio.create_task(Reaper(harness.store, interval=3600.0).run())
    await asyncio.sleep(0.2)
    [ref] = await enqueued(harness.store)
    await harness.store.lease({"q": Share(1.0, 1)}, 1, "crashed")

    async def back() -> bool:
        return (await look(harness.store, ref)).status is Status.PENDING

    await until_async(back, 15, "the job to come back")
    running.cancel()


async def ends(running: asyncio.Task[Any], seconds: float) -> bool:
    done, _ = await asyncio.wait([running], timeout=seconds)
    return bool(done)


@pytest.mark.slow
async def test_a_worker_ends_although_handlers_block_the_default_executor(app: Unstuck) -> None:
    """The end of a worker needs no thread of the default executor, where handlers may block all of them."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    begun, free = asyncio.Event(), threading.Event()

    @app.task
    async def job() -> None:
        begun.set()
        await asyncio.to_thread(free.wait)

    await job.enqueue()
    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 5)
    worker.stop(at_once=True)
    try:
        assert await ends(running, 6)
    finally:
        free.set()
        await running
