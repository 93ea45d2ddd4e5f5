"""Worker processes on PostgreSQL that are killed and frozen at random: every job ends once all the same."""

import os
import random
import signal
from collections.abc import AsyncIterator

import pytest
from support.kin import processes
from support.postgres import Postgres
from support.processes import Child
from support.waiting import until_async
from support.workers import Workers

from unstuck import Status
from unstuck.model import Lease, Settled, completed
from unstuck.testing import PostgresHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
async def harness(pg15: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(pg15.url()) as harness:
        yield harness


def at_work(workers: Workers, supervisors: list[Child]) -> list[int]:
    """The worker processes that run a job now."""
    parents = {one.pid for one in supervisors}
    running = {run.pid for run in workers.ledger.runs() if run.end is None}
    return sorted(pid for pid, entry in processes().items() if entry.parent in parents and pid in running)


def ended(workers: Workers) -> int:
    return len({record.job for record in workers.ledger.read() if record.kind == "end"})


async def kill_some(workers: Workers, supervisors: list[Child], times: int, every: int) -> None:
    """Kill a worker whenever so many more jobs have ended; who it is, chance decides."""
    chance = random.Random(4711)
    for number in range(times):
        await until_async(lambda: ended(workers) >= (number + 1) * every, 60, "some more jobs to end")  # noqa: B023
        victim = chance.choice(
            await until_async(lambda: at_work(workers, supervisors), 20, "somebody to be at work")
        )
        os.kill(victim, signal.SIGKILL)
        workers.ledger.died(victim)


@pytest.mark.parametrize(
    ("jobs", "kills"), [(150, 4), pytest.param(900, 25, marks=[pytest.mark.long, pytest.mark.timeout(400)])]
)
async def test_workers_killed_at_random_lose_no_job_and_complete_each_once(
    workers: Workers, jobs: int, kills: int
) -> None:
    await workers.enqueue("step", jobs, seconds=0.1, max_attempts=50)
    options = ("--processes", "2", "--recovery", "1")
    supervisors = [workers.start(*options) for _ in range(2)]
    await kill_some(workers, supervisors, kills, jobs // kills // 2)

    found = await workers.finished(300, supervisors[0])

    assert len(found) == jobs
    assert {job.status for job in found} == {Status.COMPLETED}
    assert sum(job.crashes for job in found) >= 1, "nobody held a job when it was killed"
    runs = {(run.job, run.fence): run for run in workers.ledger.runs()}
    for job in found:
        last = runs[job.id, job.fence]
        assert (last.pid, last.end is not None) == (job.result, True), "the outcome is not that of its holder"
    crashes = {job.id: job.crashes for job in found}
    again = {id_: len(fences) - 1 for id_, fences in workers.ledger.doubles().items()}
    assert all(crashes[id_] >= times for id_, times in again.items()), "a job ran twice, and nobody had died"
    of = {counts.queue: counts for counts in await workers.store.count()}["long"]
    assert of.totals["completed"] == jobs
    assert of.totals["crashed"] == sum(job.crashes for job in found)
    assert await workers.store.verify() == []


async def test_worker_processes_never_run_one_job_at_the_same_time(workers: Workers) -> None:
    started = [workers.start("--processes", "0") for _ in range(3)]
    for one in started:
        await one.until_line_async("takes", 30)
    await workers.enqueue("step", 400, seconds=0.02)

    found = await workers.finished(60, started[0])

    assert [(job.status, job.attempts, job.crashes) for job in found] == [(Status.COMPLETED, 1, 0)] * 400
    assert len(workers.ledger.runs()) == 400
    assert {run.pid for run in workers.ledger.runs()} == {one.pid for one in started}


@pytest.mark.parametrize("over", [True, False], ids=["after its successor", "beside its successor"])
async def test_a_worker_frozen_past_its_lease_is_replaced_and_its_late_outcome_refused(
    workers: Workers, over: bool
) -> None:
    [ref] = await workers.enqueue("block_the_loop", queue="short", seconds=1.0 if over else 3.0)
    frozen = workers.start("--processes", "0", "--recovery", "1")
    await workers.begun(ref, frozen)
    frozen.pause()
    other = workers.start("--processes", "0", "--recovery", "1")
    if over:
        await workers.over(ref, 30, other)
    else:
        await workers.begun(ref, other, times=2)
    held = await workers.job(ref)
    frozen.resume()
    await frozen.until_line_async("its outcome is refused|the lease is lost")
    late = Lease(*ref, min(run.fence for run in workers.ledger.runs()))
    assert await workers.store.settle([completed(late)]) == [Settled.LOST]
    assert (await workers.job(ref)).lease == held.lease, "the late outcome was taken for its successor's"

    job = await workers.over(ref, 30, other)
    assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 2, 1)
    assert await workers.events(ref) == ["reaper:requeued"]
    [first, second] = [run for run in workers.ledger.runs() if run.job == ref.id]
    assert (first.pid, second.fence) == (frozen.pid, job.fence)
    assert second.pid != frozen.pid
    [counts] = [counts for counts in await workers.store.count() if counts.queue == "short"]
    assert counts.totals["completed"] == 1
