"""Jobs in processes of their own: all that a handler can say from there, and all that it can break there."""

import json
import os
import signal
from typing import Any

import pytest
from support.kin import alive
from support.waiting import until_async
from support.workers import Workers, nobody, nursery_of

from unstuck import Status
from unstuck.model import Job

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ALONE = ("--processes", "0")


def told(job: Job) -> tuple[str, str, str]:
    """How a job failed, in three words."""
    assert job.error, job
    return job.error.category, job.error.code, job.error.reason or ""


async def test_a_handler_says_everything_from_its_own_process(workers: Workers) -> None:
    [ref] = await workers.enqueue("apart_async", seconds=1.5)
    worker = workers.start(*ALONE, "--burst")

    async def said() -> bool:
        job = await workers.job(ref)
        return (job.status, job.stage, job.progress) == (Status.PROCESSING, "second", {"done": 0.5})

    await until_async(said, 20, "its stage and progress", worker.log)
    assert worker.wait(20) == 0

    job = await workers.job(ref)
    [run] = workers.ledger.runs()
    assert (job.status, job.result) == (Status.COMPLETED, run.pid)
    assert run.pid != worker.pid
    [follower] = [other for other in await workers.jobs() if other.parent == job.id]
    assert (follower.status, follower.result) == (Status.COMPLETED, "from a child")
    line = json.loads(worker.says("spoken apart") or "{}")
    assert (line["jobId"], line["facts"]) == (job.id, {"customer": 7, "part": 1})


async def test_what_handlers_raise_keeps_its_meaning(workers: Workers) -> None:
    whats = ["permanent", "transient", "unknown", "snooze", "exit", "interrupt", "large", "object"]
    refs = {what: (await workers.enqueue("rough", what=what, max_attempts=1))[0] for what in whats}
    refs["misspelt"] = (await workers.enqueue("rough", waht="exit"))[0]
    worker = workers.start(*ALONE, "--burst")
    assert worker.wait(20) == 0

    jobs = {what: await workers.job(ref) for what, ref in refs.items()}
    snoozed = jobs.pop("snooze")
    assert (snoozed.status, snoozed.attempts) == (Status.PENDING, 0)
    assert (jobs["large"].status, jobs["large"].crashes) == (Status.COMPLETED, 0)
    assert jobs.pop("large").result == {"unstuck": "result dropped", "bytes": 5_000_002, "limit": 1_048_576}
    assert {what: told(job)[:2] for what, job in jobs.items()} == {
        "permanent": ("PERMANENT", "no_such_thing"),
        "transient": ("TRANSIENT", "transient"),
        "unknown": ("TRANSIENT", "RuntimeError"),
        "exit": ("TRANSIENT", "SystemExit"),
        "interrupt": ("TRANSIENT", "KeyboardInterrupt"),
        "object": ("PERMANENT", "invalid_result"),
        "misspelt": ("PERMANENT", "invalid_payload"),
    }
    bug = jobs["unknown"].error
    assert bug
    assert 'raise RuntimeError("a bug")' in bug.stack
    assert {job.crashes for job in jobs.values()} == {0}
    assert [jobs[what].status for what in jobs] == [Status.FAILED] * len(jobs)


async def test_what_handlers_do_to_their_process_touches_nobody_else(workers: Workers) -> None:
    """All of it at the same time, with innocents beside."""
    deaths = {
        "exit 0": "exit code 0",
        "exit 7": "exit code 7",
        "segfault": "signal SIGSEGV",
        "kill": "signal SIGKILL",
        "close": "exit code 1",
    }
    harmless = ["cwd", "mask", "fork", "fork that raises", "print", "threads"]
    dead = {what: (await workers.enqueue("rough", what=what, max_attempts=1))[0] for what in deaths}
    fine = {what: (await workers.enqueue("rough", what=what, max_attempts=1))[0] for what in harmless}
    innocents = await workers.enqueue("apart", 5, seconds=1.0)
    worker = workers.start(*ALONE, "--burst", "--concurrency", "20")
    assert worker.wait(40) == 0

    failed = {what: await workers.job(ref) for what, ref in dead.items()}
    assert {what: told(job)[1:] for what, job in failed.items()} == {
        what: ("crashed", cause) for what, cause in deaths.items()
    }
    assert [(job.status, job.crashes) for job in failed.values()] == [(Status.FAILED, 1)] * len(deaths)
    assert {what: (await workers.job(ref)).result for what, ref in fine.items()} == {
        what: what for what in fine
    }
    for ref in innocents:
        job = await workers.job(ref)
        assert (job.status, job.attempts) == (Status.COMPLETED, 1)


async def test_what_cannot_be_understood_ends_the_process_that_says_it(workers: Workers) -> None:
    [ref] = await workers.enqueue("rough", what="garbage", max_attempts=1)
    worker = workers.start(*ALONE)

    job = await workers.over(ref, 20, worker)

    assert job.status is Status.FAILED
    [run] = workers.ledger.runs()
    await nobody({run.pid})


async def test_what_a_job_leaves_behind_is_killed_with_a_warning(workers: Workers) -> None:
    [ref] = await workers.enqueue("brood", seconds=0.0)
    worker = workers.start(*ALONE)

    job = await workers.over(ref, 20, worker)

    assert job.status is Status.COMPLETED
    await nobody(workers.noted("brood"))
    await worker.until_line_async("a job left processes behind: they were killed")


async def test_a_timeout_kills_all_processes_of_a_job_even_those_that_do_not_listen(workers: Workers) -> None:
    [ref] = await workers.enqueue("late", timeout=1.0, max_attempts=1)
    worker = workers.start(*ALONE)

    job = await workers.over(ref, 20, worker)

    assert told(job)[:2] == ("TRANSIENT", "timeout")
    await nobody(workers.noted("brood"))


async def test_a_cancelled_job_loses_its_process_and_nobody_else_does(workers: Workers) -> None:
    [other] = await workers.enqueue("apart", seconds=3.0)
    [ref] = await workers.enqueue("brood", seconds=600.0)
    worker = workers.start(*ALONE)
    await workers.begun(other, worker)
    pids = await until_async(lambda: workers.noted("brood"), 20, "its processes", worker.log)
    await workers.store.cancel([ref])

    await nobody(pids, 10)
    job = await workers.job(ref)
    assert (job.status, job.error and job.error.code) == (Status.FAILED, "cancelled")
    assert (await workers.over(other, 10, worker)).attempts == 1


async def test_a_handler_that_cannot_be_found_in_the_child_is_told_of(workers: Workers) -> None:
    [ref] = await workers.enqueue("made_up", max_attempts=3)
    worker = workers.start(*ALONE, "--burst", app="absent_app:app")
    assert worker.wait(20) == 0

    job = await workers.job(ref)

    assert told(job)[:2] == ("PERMANENT", "not_importable")
    assert job.error
    assert "No module named 'made_up'" in job.error.message
    assert job.attempts == 1


async def test_twenty_isolated_jobs_run_at_the_same_time(workers: Workers) -> None:
    await workers.enqueue("apart", 20, seconds=1.5)
    worker = workers.start(*ALONE, "--burst", "--concurrency", "20")
    assert worker.wait(30) == 0

    assert {job.status for job in await workers.jobs()} == {Status.COMPLETED}
    runs = workers.ledger.runs()
    assert len({run.pid for run in runs}) == 20
    assert max(run.begin for run in runs) < min(run.end or 0 for run in runs), "they did not run together"


async def test_when_the_nursery_is_killed_its_jobs_have_crashed_and_the_next_gets_another(
    workers: Workers,
) -> None:
    refs = await workers.enqueue("apart", 3, seconds=2.0)
    worker = workers.start(*ALONE)
    for ref in refs:
        await workers.begun(ref, worker)
    first = nursery_of(worker)
    children = {run.pid for run in workers.ledger.runs()}
    os.kill(first, signal.SIGKILL)
    await nobody(children)

    for ref in refs:
        job = await workers.over(ref, 20, worker)
        assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 2, 1)
        assert told(job)[1:] == ("crashed", "the nursery died with it")
    assert nursery_of(worker) != first


async def test_lifespans_are_for_the_worker_alone(workers: Workers) -> None:
    await workers.enqueue("who_has_the_pool", 2)
    [ref] = await workers.enqueue("who_has_the_pool_apart")
    worker = workers.start(*ALONE, "--burst")
    assert worker.wait(20) == 0

    jobs: dict[bool, list[Any]] = {True: [], False: []}
    for job in await workers.jobs():
        jobs[job.ref == ref].append(job.result)
    assert jobs == {True: [[]], False: [[worker.pid], [worker.pid]]}


async def test_the_nursery_ends_with_a_worker_that_was_killed(workers: Workers) -> None:
    """Without a supervisor, which would do it, too."""
    [ref] = await workers.enqueue("brood", seconds=600.0)
    worker = workers.start(*ALONE)
    pids = await until_async(lambda: workers.noted("brood"), 20, "its processes", worker.log)
    nursery = nursery_of(worker)
    assert all(map(alive, [nursery, *pids]))
    worker.kill()

    await nobody([nursery, *pids])
    assert (await workers.job(ref)).status is Status.PROCESSING
