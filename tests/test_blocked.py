"""Handlers that do not let go: of the event loop, or of the whole interpreter, for longer than their lease."""

import pytest
from support.workers import Workers

from unstuck import Status

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ALONE = ("--processes", "0", "--recovery", "1", "--concurrency", "1")


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
    workers: Workers,
) -> None:
    """Nothing else can run in its process, beats included: only another process can tell."""
    [ref] = await workers.enqueue("keep_the_interpreter", queue="short", seconds=2.6)
    worker = workers.start(*ALONE)
    await workers.begun(ref, worker)
    second = workers.start(*ALONE)

    job = await workers.over(ref, 60, second)

    assert job.status is Status.COMPLETED
    assert job.attempts == job.crashes + 1
    line = worker.until_line("heartbeats come .* late", 30)
    assert "running: keep_the_interpreter" in line
    assert "isolate=True" in line
    if job.crashes:
        worker.until_line("lease is lost|lease of job .* was lost", 30)


async def test_in_a_process_of_its_own_it_keeps_its_lease(workers: Workers) -> None:
    [ref] = await workers.enqueue("keep_an_interpreter", queue="short", seconds=2.6)
    worker = workers.start(*ALONE)
    await workers.begun(ref, worker)
    workers.start(*ALONE)

    job = await workers.over(ref, 60, worker)

    assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 1, 0)
    assert not worker.says("heartbeats come .* late")
    [run] = workers.ledger.runs()
    assert run.end
    assert (run.end - run.begin) / 1e9 > 2.0, "it was shorter than its lease"
