"""What follows a final failure when the worker dies of it: one job, whoever ends the lease."""

import os
import signal

import pytest
from support.waiting import until_async
from support.workers import Workers, worker_of

from unstuck import Filter, Status
from unstuck.protocol.job import FollowUp
from unstuck.recovery.reaper import Reaper

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
REPORT = FollowUp(
    queue="reports", task="report", names=("which", "task", "why")
)  # which no worker here takes


async def reports(workers: Workers) -> list[tuple[str, str]]:
    found = (await workers.store.find(Filter(queue="reports"))).jobs
    return [(job.payload["which"], job.payload["why"]["code"]) for job in found]


async def test_a_worker_that_is_killed_on_the_last_attempt_of_a_job_is_followed_once(
    workers: Workers,
) -> None:
    [ref] = await workers.enqueue("step", gate=workers.gate, max_attempts=1, on_failure=REPORT)
    supervisor = workers.start()
    await workers.begun(ref, supervisor)
    os.kill(worker_of(supervisor), signal.SIGKILL)

    job = await workers.over(ref, 30, supervisor)
    await Reaper(workers.store).recover()  # another one that looks

    assert (job.status, job.dead) == (Status.FAILED, True)
    assert await reports(workers) == [(ref.id, "crashed")]


async def test_a_supervisor_that_dies_with_its_worker_leaves_it_to_any_reaper(workers: Workers) -> None:
    [ref] = await workers.enqueue("step", gate=workers.gate, max_attempts=1, on_failure=REPORT)
    supervisor = workers.start()
    await workers.begun(ref, supervisor)
    os.kill(supervisor.pid, signal.SIGKILL)
    os.kill(worker_of(supervisor), signal.SIGKILL)

    async def recovered() -> bool:
        reapers = [Reaper(workers.store) for _ in range(3)]
        for reaper in reapers:
            await reaper.recover_dead()
        return (await workers.job(ref)).status is Status.FAILED

    await until_async(recovered, 60, "a reaper that finds the process gone", supervisor.log)
    assert await reports(workers) == [(ref.id, "crashed")]


async def test_a_job_that_expired_in_front_of_a_busy_worker_is_followed_and_not_run(workers: Workers) -> None:
    """Its one place is taken, so that the job cannot start in time."""
    [busy] = await workers.enqueue("step", gate=workers.gate)
    worker = workers.start("--concurrency", "1")
    await workers.begun(busy, worker)
    [late] = await workers.enqueue("step", expires=0.5, on_failure=REPORT)

    job = await workers.over(late, 30, worker)

    assert (job.expired, job.attempts) == (True, 0)
    assert await reports(workers) == [(late.id, "expired")]
    workers.open(1)
    assert (await workers.over(busy, 30, worker)).status is Status.COMPLETED
    assert workers.ledger.started(late.id) == 0
