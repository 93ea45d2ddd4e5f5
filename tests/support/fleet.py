"""Trials of worker processes, the same on every store: some are killed at random, one is frozen past its lease."""

import os
import random
import signal

from support.kin import processes
from support.processes import Child
from support.waiting import until_async
from support.workers import Workers
from unstuck import Status
from unstuck.operations.verify import broken_rules
from unstuck.protocol.job import Lease
from unstuck.protocol.outcome import Settled, completed


async def killed_at_random(workers: Workers, jobs: int, kills: int) -> None:
    """No job is lost, and each is completed once."""
    await workers.enqueue("step", jobs, seconds=0.1, max_attempts=50)
    options = ("--processes", "2", "--recovery", "1")
    supervisors = [workers.start(*options) for _ in range(2)]
    await _kill_some(workers, supervisors, kills, jobs // kills // 2)

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
    assert await broken_rules(workers.store) == []


async def _kill_some(workers: Workers, supervisors: list[Child], times: int, every: int) -> None:
    """Kill a worker whenever so many more jobs have ended; who it is, chance decides."""
    chance = random.Random(4711)
    for number in range(times):
        await until_async(lambda: workers.ended() >= (number + 1) * every, 60, "some more jobs to end")  # noqa: B023
        busy = await until_async(lambda: _at_work(workers, supervisors), 20, "somebody to be at work")
        victim = chance.choice(busy)
        os.kill(victim, signal.SIGKILL)
        workers.ledger.died(victim)


def _at_work(workers: Workers, supervisors: list[Child]) -> list[int]:
    """The worker processes that run a job now."""
    parents = {one.pid for one in supervisors}
    running = {run.pid for run in workers.ledger.runs() if run.end is None}
    return sorted(pid for pid, entry in processes().items() if entry.parent in parents and pid in running)


async def frozen_past_its_lease(workers: Workers, *, over: bool) -> None:
    """It is replaced, and what it says when its successor is ``over``, or still at work, is refused."""
    [ref] = await workers.enqueue("block_the_loop", queue="short", gate=workers.gate)
    frozen = workers.start("--processes", "0", "--recovery", "1")
    await workers.begun(ref, frozen)
    frozen.pause()
    workers.open(1)  # it is at the end of its work when it wakes up
    other = workers.start("--processes", "0", "--recovery", "1")
    if over:
        workers.open(2)
        await workers.over(ref, 30, other)
    else:
        await workers.begun(ref, other, times=2)
    held = await workers.job(ref)
    frozen.resume()
    await frozen.until_line_async("its outcome is refused|the lease is lost")
    late = Lease(*ref, min(run.fence for run in workers.ledger.runs()))
    assert await workers.store.settle([completed(late)]) == [Settled.LOST]
    assert (await workers.job(ref)).lease == held.lease, "the late outcome was taken for its successor's"

    workers.open(2)
    job = await workers.over(ref, 30, other)
    assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 2, 1)
    assert await workers.events(ref) == ["reaper:requeued"]
    [first, second] = [run for run in workers.ledger.runs() if run.job == ref.id]
    assert (first.pid, second.fence) == (frozen.pid, job.fence)
    assert second.pid != frozen.pid
    [counts] = [counts for counts in await workers.store.count() if counts.queue == "short"]
    assert counts.totals["completed"] == 1
