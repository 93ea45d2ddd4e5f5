"""Real worker processes that are killed, frozen and stopped in the middle of their work."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from support.folders import IMPORTABLE
from support.ledger import Ledger
from support.processes import Child
from support.waiting import until, until_async

from unstuck import Filter, Status
from unstuck.protocol.ids import new_id
from unstuck.protocol.job import Job, NewJob, Ref
from unstuck.testing import SQLiteHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

COMMAND = str(Path(sys.executable).parent / "unstuck")
Start = Callable[..., Child]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture
def start(tmp_path: Path, harness: SQLiteHarness, ledger: Ledger) -> Iterator[Start]:
    """Starts worker processes on the test's store; none of them outlives the test."""
    with ExitStack() as children:
        env = {"UNSTUCK_STORE": harness.url, "PYTHONPATH": IMPORTABLE, **ledger.env()}
        count = 0

        def begin(*options: str) -> Child:
            nonlocal count
            count += 1
            argv = [COMMAND, "worker", "worker_app:app", "--processes", "0", "--recovery", "1", *options]
            child = Child(argv, tmp_path / f"worker-{count}.log", env=env, cwd=tmp_path)
            return children.enter_context(child)

        yield begin


async def enqueue(harness: SQLiteHarness, task: str, count: int, **facts: object) -> list[Ref]:
    payload = {name: facts.pop(name) for name in ("seconds", "gate") if name in facts}
    queue = str(facts.pop("queue", "short"))
    jobs = [
        NewJob(queue=queue, task=task, id=new_id(), payload=payload, backoff=(0.1,), **facts)  # type: ignore[arg-type]
        for _ in range(count)
    ]
    return [answer.ref for answer in await harness.store.enqueue(jobs)]


async def all_jobs(harness: SQLiteHarness) -> list[Job]:
    return (await harness.store.find(Filter(), 1000)).jobs


async def finished(harness: SQLiteHarness, timeout: float, log: Path | None = None) -> list[Job]:
    """All jobs, once none of them is pending or processing."""

    async def done() -> list[Job]:
        jobs = await all_jobs(harness)
        over = all(job.status in (Status.COMPLETED, Status.FAILED) for job in jobs)
        return jobs if over else []

    return await until_async(done, timeout, "all jobs to finish", log)


def ran_in(ledger: Ledger, pid: int) -> bool:
    return any(run.pid == pid for run in ledger.runs())


def unexplained(ledger: Ledger, jobs: list[Job]) -> dict[str, tuple[int, ...]]:
    """Jobs that ran to their end more often than by the deaths of their workers.

    Who is killed between the end of a job and its settling takes the news of it with him: it runs again.
    """
    crashes = {job.id: job.crashes for job in jobs}
    return {id_: fences for id_, fences in ledger.doubles().items() if len(fences) - 1 > crashes[id_]}


async def test_the_jobs_of_a_killed_worker_are_done_by_another(
    harness: SQLiteHarness, ledger: Ledger, start: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"  # so that it cannot be done with all of them before it is killed
    refs = await enqueue(harness, "step", 36, seconds=0.1, max_attempts=20)
    refs += await enqueue(harness, "step", 4, gate=str(gate), max_attempts=20)
    first = start("--concurrency", "4")
    until(lambda: len(ledger.runs()) > 8, 20, "the first worker to be busy", first.log)
    first.kill()
    ledger.died(first.pid)
    gate.touch()
    second = start("--concurrency", "4")

    jobs = await finished(harness, 40, second.log)

    assert {job.ref for job in jobs} == set(refs)
    assert {job.status for job in jobs} == {Status.COMPLETED}
    assert unexplained(ledger, jobs) == {}, "an effect was completed twice"
    lost = [job for job in jobs if job.crashes]
    assert lost, "the killed worker held nothing: the test proved nothing"
    for job in lost:
        assert (job.attempts, job.crashes) == (2, 1)
        assert job.error
        assert (job.error.code, f"process {first.pid} of" in job.error.message) == ("crashed", True)
    for job in jobs:
        assert job.attempts - job.crashes == 1, "a crash cost more or less than its attempt"
        assert 1 <= ledger.started(job.id) <= job.attempts


@pytest.mark.long
@pytest.mark.accepts("REC-047", "MQ-014")
async def test_workers_killed_again_and_again_lose_nothing(
    harness: SQLiteHarness, ledger: Ledger, start: Start
) -> None:
    refs = await enqueue(harness, "step", 40, seconds=0.1, max_attempts=20)
    survivor = start("--concurrency", "2")
    for _ in range(4):
        victim = start("--concurrency", "5")
        victim.until_line("takes short", 20)
        refs += await enqueue(harness, "step", 90, seconds=0.1, max_attempts=20)
        until(partial(ran_in, ledger, victim.pid), 20, "it to run a job", victim.log)
        victim.kill()
        ledger.died(victim.pid)

    jobs = await finished(harness, 60, survivor.log)

    assert {job.ref for job in jobs} == set(refs)
    assert {job.status for job in jobs} == {Status.COMPLETED}
    assert unexplained(ledger, jobs) == {}
    assert sum(job.crashes for job in jobs) > 0
    assert all(job.attempts - job.crashes == 1 for job in jobs), "a crash cost more or less than its attempt"


@pytest.mark.accepts("REC-051")
async def test_a_frozen_workers_late_result_is_refused(
    harness: SQLiteHarness, ledger: Ledger, start: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    [ref] = await enqueue(harness, "step", 1, gate=str(gate), max_attempts=20)
    zombie = start("--concurrency", "1")
    until(lambda: ledger.started(ref.id) == 1, 20, "the job to start", zombie.log)
    zombie.pause()
    gate.touch()
    successor = start("--concurrency", "1")

    [job] = await finished(harness, 30, successor.log)
    assert (job.attempts, job.crashes) == (2, 1)
    assert job.result != zombie.pid
    assert job.error
    assert (job.error.code, job.error.reason) == ("timeout", "lease_expired")
    zombie.resume()

    zombie.until_line("lease is lost|lease of job .* was lost", 20)
    [after] = await all_jobs(harness)
    assert after == job, "the zombie changed the record"
    zombie.terminate()
    assert zombie.wait(20) == 0


async def test_a_frozen_worker_that_wakes_in_time_keeps_its_job(
    harness: SQLiteHarness, ledger: Ledger, start: Start, tmp_path: Path
) -> None:
    """A pause of a third of the lease, with a reaper of another process looking on."""
    workers = [start("--concurrency", "1"), start("--concurrency", "1")]
    for worker in workers:
        worker.until_line("takes short", 20)
    gate = tmp_path / "gate"
    [ref] = await enqueue(harness, "longer_step", 1, queue="longer", gate=str(gate), max_attempts=20)
    [run] = until(ledger.runs, 20, "the job to start")
    [holder] = [worker for worker in workers if worker.pid == run.pid]
    holder.pause()
    await asyncio.sleep(2.0)
    holder.resume()
    gate.touch()

    [job] = await finished(harness, 30, holder.log)

    assert (job.result, job.attempts, job.crashes) == (holder.pid, 1, 0)
    assert ledger.started(ref.id) == 1


async def test_a_job_longer_than_its_lease_is_kept_alive_by_beats(
    harness: SQLiteHarness, ledger: Ledger, start: Start
) -> None:
    """The lease is 2 s, the jobs take 5; a second worker with a reaper stands by."""
    await enqueue(harness, "step", 2, seconds=5.0)
    await enqueue(harness, "blocking_step", 2, seconds=5.0)
    start("--concurrency", "2")
    second = start("--concurrency", "2")

    jobs = await finished(harness, 40, second.log)

    assert [(job.attempts, job.crashes) for job in jobs] == [(1, 0)] * 4
    assert ledger.overlaps() == []


async def test_a_poison_job_ends_in_the_dead_letters_and_the_others_are_done(
    harness: SQLiteHarness, ledger: Ledger, start: Start
) -> None:
    [poison] = await enqueue(harness, "poison", 1, max_attempts=3)
    refs = await enqueue(harness, "step", 6, seconds=0.05, max_attempts=20)
    workers = 0

    async def done() -> bool:
        nonlocal workers
        if not any(child.exit_code is None for child in alive):
            workers += 1
            alive.append(start("--concurrency", "1"))
        return all(job.status in (Status.COMPLETED, Status.FAILED) for job in await all_jobs(harness))

    alive: list[Child] = []
    await until_async(done, 60, "all jobs to finish")

    jobs = {job.ref: job for job in await all_jobs(harness)}
    assert {jobs[ref].status for ref in refs} == {Status.COMPLETED}
    dead = jobs[poison]
    assert (dead.status, dead.attempts, dead.crashes) == (Status.FAILED, 3, 3)
    assert dead.error is not None
    assert (dead.error.code, dead.error.reason) == ("crashed", "exit code 137")
    assert ledger.started(poison.id) == 3
    assert workers == 2, "it killed a second worker although it was known to be dangerous"
    events = [event.type for event in await harness.store.events(job=poison)]
    assert events == ["crash:requeued", "crash:requeued", "crash:failed(crashed)", "alert"]


async def test_sigterm_lets_running_jobs_finish_and_gives_back_the_rest(
    harness: SQLiteHarness, ledger: Ledger, start: Start
) -> None:
    await enqueue(harness, "step", 30, seconds=0.5)
    worker = start("--concurrency", "3", "--grace", "20")
    until(lambda: len(ledger.runs()) >= 3, 20, "three jobs to run", worker.log)
    worker.terminate()

    assert worker.wait(20) == 0
    jobs = await all_jobs(harness)
    by_status = {status: [job for job in jobs if job.status is status] for status in Status}
    assert by_status[Status.PROCESSING] == []
    assert len(by_status[Status.COMPLETED]) == len(ledger.runs()) >= 3
    assert all(job.attempts == 0 for job in by_status[Status.PENDING])


async def test_sigterm_twice_ends_at_once_even_with_a_busy_thread(
    harness: SQLiteHarness, ledger: Ledger, start: Start
) -> None:
    [ref] = await enqueue(harness, "blocking_step", 1, seconds=600.0)
    worker = start("--concurrency", "1", "--grace", "600")
    until(lambda: ledger.started(ref.id) == 1, 20, "the job to start", worker.log)
    worker.terminate()
    worker.until_line("takes no more jobs", 10)  # or the kernel may make one signal of the two
    await asyncio.sleep(0.3)  # two within a moment are taken for one
    worker.terminate()

    assert worker.wait(15) == 0
    [job] = await all_jobs(harness)
    assert (job.status, job.attempts, job.owner) == (Status.PENDING, 0, None)
