"""Handlers that do not let go: of the event loop, or of the whole interpreter, for longer than their lease."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from support.waiting import until_async
from support.workers import Workers

from unstuck import Status

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ALONE = ("--processes", "0", "--recovery", "1", "--concurrency", "1")


def fifo_in(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def let_go(fifo: Path) -> None:
    """Ends the call of the handler that keeps its interpreter; an error if there is none."""
    os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease_and_is_named(workers: Workers) -> None:
    """The lease is 2 s; a second worker looks for leases that have run out."""
    [ref] = await workers.enqueue("block_the_loop", queue="short", seconds=3.5)
    worker = workers.start(*ALONE)
    await workers.begun(ref, worker)
    workers.start(*ALONE)

    job = await workers.over(ref, 20, worker)

    assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 1, 0)
    line = worker.until_line("the event loop has not turned")
    assert "family_app.py:" in line, "the place is not told"
    assert "on it run: block_the_loop" in line
    assert "isolate" in line
    worker.until_line("the event loop turns again after")


async def test_a_handler_that_keeps_the_interpreter_is_named_and_its_late_result_refused(
    workers: Workers, tmp_path: Path
) -> None:
    """Nothing else can run in its process, heartbeats included: only another process can notice, by the lease."""
    fifo = fifo_in(tmp_path)
    [ref] = await workers.enqueue("keep_the_interpreter", queue="short", fifo=str(fifo), gate=workers.gate)
    workers.open(2)
    worker = workers.start(*ALONE)
    await workers.begun(ref, worker)
    second = workers.start(*ALONE)

    job = await workers.over(ref, 60, second)
    assert (job.status, job.attempts, job.crashes, job.result) == (Status.COMPLETED, 2, 1, 2)
    let_go(fifo)
    line = worker.until_line("heartbeats come .* late", 30)
    assert "running: keep_the_interpreter" in line
    assert "isolate=True" in line
    worker.until_line("lease is lost|lease of job .* was lost", 30)
    workers.open(1)  # only now does the first attempt end, too
    worker.terminate()
    assert worker.wait(30) == 0, "it has nothing left to settle"
    assert await workers.job(ref) == job, "the late result was not refused"


async def test_in_a_process_of_its_own_it_keeps_its_lease(workers: Workers, tmp_path: Path) -> None:
    fifo = fifo_in(tmp_path)
    [ref] = await workers.enqueue("keep_an_interpreter", queue="short", fifo=str(fifo))
    worker = workers.start(*ALONE)
    await workers.begun(ref, worker)
    second = workers.start(*ALONE)
    await second.until_line_async("takes", 30)
    first = (await workers.job(ref)).lease_until
    assert first is not None

    async def outlived() -> bool:
        """The lease that it had is over, for longer than the other worker takes to notice."""
        return (await workers.store.clock()).now > first + timedelta(seconds=1.5)

    await until_async(outlived, 30, "the end of its lease", worker.log)
    let_go(fifo)
    job = await workers.over(ref, 60, worker)

    assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 1, 0)
    assert not worker.says("heartbeats come .* late")
