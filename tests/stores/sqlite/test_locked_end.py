"""How a service ends while another process holds the file's write lock: soon, with a word on what was not written."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import Child
from support.waiting import until_async
from support.workers import Workers, worker_of

from unstuck import Filter, Status, StoreUnavailable, Unstuck, Worker
from unstuck.stores.sqlite.connection import PATIENCE, connect
from unstuck.stores.sqlite.store import SQLiteStore
from unstuck.testing import SQLiteHarness
from unstuck.testing.conformance.given import new
from unstuck.worker.supervisor import FAREWELL

pytestmark = pytest.mark.anyio

KILLED = (
    "does not end: killing it"  # what became of a worker that waited for the lock, FAREWELL after its grace
)
SOON = PATIENCE / 2  # seconds: who waited for the lock would take twice as long
HOLDER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute("BEGIN IMMEDIATE")
print("holds", flush=True)
time.sleep(600)
"""


@contextmanager
def locked(harness: SQLiteHarness, folder: Path) -> Iterator[None]:
    """Somebody else's program keeps the write lock."""
    argv = [sys.executable, "-c", HOLDER, harness.url.removeprefix("sqlite:///")]
    with Child(argv, folder / "holder.log") as child:
        child.until_line("holds", timeout=60)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2])
async def test_an_idle_worker_ends(
    workers: Workers, harness: SQLiteHarness, tmp_path: Path, signals: int
) -> None:
    supervisor = workers.start("--grace", "1")
    worker_of(supervisor)
    with locked(harness, tmp_path):
        supervisor.terminate()
        if signals == 2:
            await asyncio.sleep(0.5)  # sooner, both are one
            supervisor.terminate()
        assert supervisor.wait(1 + FAREWELL + SOON) == 0
    assert supervisor.says("the store does not answer: what worker .* may still hold will run out")
    assert not supervisor.says(KILLED)


@pytest.mark.slow
async def test_a_worker_whose_outcome_cannot_be_written_ends_and_the_job_runs_out(
    workers: Workers, harness: SQLiteHarness, tmp_path: Path
) -> None:
    [ref] = await workers.enqueue("step", gate=workers.gate)
    supervisor = workers.start("--grace", "1")
    await workers.begun(ref, supervisor)
    with locked(harness, tmp_path):
        workers.open(1)
        await until_async(workers.ended, 60, "the end of the handler", supervisor.log)
        supervisor.terminate()
        assert supervisor.wait(1 + FAREWELL + SOON) == 0
        assert (await workers.job(ref)).status is Status.PROCESSING
    assert supervisor.says(f"1 outcomes could not be stored.*{ref.id}")
    assert not supervisor.says(KILLED)


@pytest.mark.slow
async def test_a_supervisor_does_not_wait_to_end_the_leases_of_a_dead_worker(
    workers: Workers, harness: SQLiteHarness, tmp_path: Path
) -> None:
    supervisor = workers.start("--grace", "1")
    worker = worker_of(supervisor)
    with locked(harness, tmp_path):
        os.kill(worker, signal.SIGKILL)
        await supervisor.until_line_async("died: signal SIGKILL")
        supervisor.terminate()
        supervisor.wait(SOON)
    assert supervisor.says("the store does not answer: the leases of workers that died will run out")


async def test_a_worker_that_is_to_end_at_once_waits_for_no_write(harness: SQLiteHarness) -> None:
    app = Unstuck(harness.url)
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> None:
        began.set()
        await go_on.wait()

    async with app:
        await work.enqueue()
        worker = Worker(app, recovery=0)
        running = asyncio.create_task(worker.run())
        await began.wait()
        theirs = connect(harness.url.removeprefix("sqlite:///"))
        theirs.execute("BEGIN IMMEDIATE")
        go_on.set()
        await until_async(lambda: worker._store_io.owed, 60, "an outcome to be written")
        worker.stop()
        worker.stop(at_once=True)
        done, _ = await asyncio.wait([running], timeout=SOON)
        theirs.close()
        await running
        assert done, "it waited for the lock"


async def test_a_store_is_closed_although_calls_wait_for_the_lock(harness: SQLiteHarness) -> None:
    theirs = connect(harness.url.removeprefix("sqlite:///"))
    theirs.execute("BEGIN IMMEDIATE")
    async with harness.store.twin() as store:
        calls = [asyncio.create_task(store.enqueue([new()])) for _ in range(3)]
        await asyncio.sleep(0)  # all three are asked for
        closing = time.monotonic()
    assert time.monotonic() - closing < SOON
    assert [type(one) for one in await asyncio.gather(*calls, return_exceptions=True)] == [
        StoreUnavailable
    ] * 3
    theirs.close()
    assert (await harness.store.count()) == []


async def test_a_call_that_nobody_waits_for_any_more_does_not_hold_up_the_next(
    harness: SQLiteHarness,
) -> None:
    theirs = connect(harness.url.removeprefix("sqlite:///"))
    theirs.execute("BEGIN IMMEDIATE")
    async with harness.store.twin() as store:
        assert isinstance(store, SQLiteStore)
        writer = store._writer
        given_up = asyncio.create_task(store.enqueue([new()]))
        await until_async(lambda: writer._asked, SOON, "the first call to be tried")
        [first] = writer._asked
        given_up.cancel()
        next_one = asyncio.create_task(store.enqueue([wanted := new()]))
        await until_async(lambda: writer._asked and first not in writer._asked, SOON, "the next to be tried")
        theirs.close()
        await next_one
        assert [job.id for job in (await store.find(Filter())).jobs] == [wanted.id]
