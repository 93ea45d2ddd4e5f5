"""Worker processes that are replaced after so many jobs: none is lost, delayed or run twice."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from support.command import Command
from support.waiting import until_async
from support.workers import Workers

from unstuck import Status
from unstuck.operations.verify import broken_rules

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_thousand_jobs_run_once_each_on_processes_that_run_fifty(workers: Workers) -> None:
    await workers.enqueue("step", 1000, seconds=0.005)
    supervisor = workers.start("--processes", "2", "--max-jobs", "50")

    jobs = await workers.finished(500, supervisor)

    assert len(jobs) == 1000
    assert {(job.status, job.attempts, job.crashes) for job in jobs} == {(Status.COMPLETED, 1, 0)}
    of_process = Counter(run.pid for run in workers.ledger.runs())
    assert workers.ledger.doubles() == {}
    assert (sum(of_process.values()), max(of_process.values())) == (1000, 50)
    text = supervisor.log.read_text()
    assert "died" not in text
    assert "starting another worker in" not in text
    assert await broken_rules(workers.store) == []
    supervisor.terminate()
    assert supervisor.wait(60) == 0


async def test_the_next_process_works_while_the_last_jobs_of_the_one_before_run(workers: Workers) -> None:
    [long] = await workers.enqueue("step", gate=workers.gate)
    supervisor = workers.start("--max-jobs", "1", "--grace", "1")
    await workers.begun(long, supervisor)
    [short] = await workers.enqueue("step")

    done = await workers.over(short, 60, supervisor)
    still = await workers.job(long)
    workers.open(1)
    ended = await workers.over(long, 60, supervisor)

    assert (done.status, still.status) == (Status.COMPLETED, Status.PROCESSING)
    assert (ended.status, ended.attempts, ended.crashes) == (Status.COMPLETED, 1, 0)
    assert done.result != ended.result
    supervisor.terminate()
    assert supervisor.wait(60) == 0


async def test_whoever_is_stopped_stops_those_that_were_replaced_too(workers: Workers) -> None:
    [long] = await workers.enqueue("step", gate=workers.gate)
    supervisor = workers.start("--max-jobs", "1", "--grace", "0")
    await workers.begun(long, supervisor)
    [short] = await workers.enqueue("step")
    await workers.over(short, 60, supervisor)

    supervisor.terminate()

    assert supervisor.wait(60) == 0
    job = await workers.job(long)
    assert (job.status, job.attempts, job.crashes) == (Status.PENDING, 0, 0)
    assert supervisor.family() == set()


async def test_the_death_of_a_process_that_was_replaced_is_seen_at_once(workers: Workers) -> None:
    [long] = await workers.enqueue("step", gate=workers.gate)
    supervisor = workers.start("--max-jobs", "1")
    await workers.begun(long, supervisor)
    [short] = await workers.enqueue("step")
    await workers.over(short, 60, supervisor)
    [run] = [run for run in workers.ledger.runs() if run.job == long.id]

    os.kill(run.pid, signal.SIGKILL)
    workers.ledger.died(run.pid)
    workers.open(2)

    job = await workers.over(long, 60, supervisor)
    assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 2, 1)
    supervisor.terminate()
    assert supervisor.wait(60) == 0


async def test_there_are_never_more_than_two_processes_in_one_place(workers: Workers) -> None:
    """However many long jobs there are, and however few each process may run."""
    refs = await workers.enqueue("step", 4, gate=workers.gate)
    supervisor = workers.start("--max-jobs", "1")
    await until_async(lambda: len(workers.ledger.runs()) >= 2, 60, "start of two jobs", supervisor.log)
    # As long as a third process would take, another one starts and ends.
    assert workers.start("--processes", "1", "--queue", "short", "--burst").wait(60) == 0

    assert len(workers.ledger.runs()) == 2
    workers.open(1)
    jobs = await workers.finished(100, supervisor)
    assert [(job.status, job.attempts) for job in jobs] == [(Status.COMPLETED, 1)] * len(refs)
    supervisor.terminate()
    assert supervisor.wait(60) == 0


@pytest.mark.parametrize("end", ["--burst", "--until-idle"])
async def test_a_burst_runs_what_becomes_due_before_its_last_job_has_ended(
    workers: Workers, end: str
) -> None:
    [long] = await workers.enqueue("step", gate=workers.gate)
    supervisor = workers.start("--max-jobs", "1", end)
    await workers.begun(long, supervisor)
    # As long as a process would take that finds nothing due, another one starts and ends.
    assert workers.start("--processes", "1", "--queue", "short", "--burst").wait(60) == 0
    await workers.enqueue("step")
    workers.open(1)

    assert supervisor.wait(100) == 0
    assert {job.status for job in await workers.jobs()} == {Status.COMPLETED}


@pytest.mark.parametrize("end", ["--burst", "--until-idle"])
async def test_a_burst_goes_on_until_nothing_is_due(workers: Workers, end: str) -> None:
    refs = await workers.enqueue("step", 5)
    supervisor = workers.start("--max-jobs", "2", end)

    assert supervisor.wait(100) == 0

    jobs = await workers.jobs()
    assert [(job.status, job.attempts) for job in jobs] == [(Status.COMPLETED, 1)] * len(refs)
    assert max(Counter(job.result for job in jobs).values()) <= 2


async def test_a_worker_without_a_supervisor_ends(workers: Workers) -> None:
    await workers.enqueue("step", 3)

    assert workers.start("--max-jobs", "2", "--processes", "0").wait(60) == 0

    assert Counter(job.status for job in await workers.jobs()) == {Status.COMPLETED: 2, Status.PENDING: 1}


def test_the_number_is_a_setting_of_the_host(run: Command, tmp_path: Path) -> None:
    for _ in range(2):
        run("enqueue", "send", '{"to": "ann"}', "--queue", "mail")
    (tmp_path / "unstuck.toml").write_text("[worker]\nmax_jobs = 1\n")

    worked = run("worker", "tasks:app", "--processes", "0")
    wrong = run("worker", "tasks:app", "--max-jobs", "0")

    assert worked.returncode == 0, worked.stderr
    assert "has started 1 jobs and takes no more" in worked.stderr
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "unstuck: max_jobs is 0: it must be a whole number from 1 to 1000000000\n",
    )


async def test_a_thread_that_never_ends_does_not_keep_the_next_process_waiting(workers: Workers) -> None:
    [stuck] = await workers.enqueue("hold", gate=workers.gate, timeout=0.5, max_attempts=1)
    supervisor = workers.start("--max-jobs", "1", "--grace", "1")
    await workers.over(stuck, 60, supervisor)
    [short] = await workers.enqueue("step")

    assert (await workers.over(short, 60, supervisor)).status is Status.COMPLETED
    [run] = [run for run in workers.ledger.runs() if run.job == stuck.id]
    await until_async(lambda: run.pid not in supervisor.family(), 60, "the end of the process")
    assert "died" not in supervisor.log.read_text()
    supervisor.terminate()
    assert supervisor.wait(60) == 0
