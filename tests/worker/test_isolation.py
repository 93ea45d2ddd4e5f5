"""Jobs in processes of their own: all that a handler can say from there, and all that it can break there."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from support.kin import alive, kin
from support.waiting import until, until_async
from support.workers import Workers, fork_server_of, named, nobody

from unstuck import Status
from unstuck.app.context import Context
from unstuck.app.handler import Handler
from unstuck.protocol.job import Job
from unstuck.worker.isolation.parent import Isolation

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ALONE = ("--processes", "0")


def told(job: Job) -> tuple[str, str, str]:
    """How a job failed, in three words."""
    assert job.error, job
    return job.error.category, job.error.code, job.error.reason or ""


async def test_a_handler_reports_everything_from_its_own_process(workers: Workers) -> None:
    [ref] = await workers.enqueue("apart_async", gate=workers.gate)
    worker = workers.start(*ALONE, "--burst")

    async def said() -> bool:
        job = await workers.job(ref)
        return (job.status, job.stage, job.progress) == (Status.PROCESSING, "second", {"done": 0.5})

    await until_async(said, 20, "its stage and progress", worker.log)
    workers.open(1)
    assert worker.wait(30) == 0

    job = await workers.job(ref)
    [run] = workers.ledger.runs()
    assert (job.status, job.result) == (Status.COMPLETED, run.pid)
    assert run.pid != worker.pid
    [follower] = [other for other in await workers.jobs() if other.parent == job.id]
    assert (follower.status, follower.result) == (Status.COMPLETED, "from a child")
    line = json.loads(worker.says("spoken apart") or "{}")
    assert (line["jobId"], line["facts"]) == (job.id, {"customer": 7, "part": 1})


async def test_what_handlers_raise_keeps_its_meaning(workers: Workers) -> None:
    whats = [
        "permanent",
        "transient",
        "unknown",
        "snooze",
        "exit",
        "interrupt",
        "large",
        "object",
        "coroutine",
    ]
    refs = {what: (await workers.enqueue("rough", what=what, max_attempts=1))[0] for what in whats}
    refs["misspelt"] = (await workers.enqueue("rough", waht="exit"))[0]
    worker = workers.start(*ALONE, "--burst")
    assert worker.wait(60) == 0

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
        "coroutine": ("PERMANENT", "permanent"),
    }
    bug = jobs["unknown"].error
    assert bug
    assert 'raise RuntimeError("a bug")' in bug.stack
    awaitable = jobs["coroutine"].error
    assert awaitable
    assert "make it 'async def'" in awaitable.message
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
    assert worker.wait(60) == 0

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


async def test_what_cannot_be_understood_ends_the_process_that_sent_it(workers: Workers) -> None:
    [ref] = await workers.enqueue("rough", what="garbage", max_attempts=1)
    worker = workers.start(*ALONE)

    job = await workers.over(ref, 20, worker)

    assert job.status is Status.FAILED
    [run] = workers.ledger.runs()
    await nobody({run.pid})


@pytest.mark.parametrize(
    "before", [(), ("unshare", "--pid", "--fork")], ids=["", "where /proc has other pids"]
)
async def test_what_a_job_leaves_behind_is_killed_with_a_warning(
    workers: Workers, before: tuple[str, ...]
) -> None:
    await workers.enqueue("apart", seconds=1.8)
    [ref] = await workers.enqueue("brood", gate=workers.gate)
    worker = workers.start(*ALONE, before=before)
    await workers.begun(ref, worker)

    def both() -> set[int]:
        found = named(worker, "sleep")
        return found if len(found) == 2 else set()

    pids = until(both, 20, "what it leaves behind", worker.log)
    workers.open(1)

    job = await workers.over(ref, 20, worker)

    assert job.status is Status.COMPLETED
    await nobody(pids)
    await worker.until_line_async("a job left processes behind: they were killed")
    assert {(job.status, job.attempts) for job in await workers.finished(20, worker)} == {
        (Status.COMPLETED, 1)
    }


async def test_a_timeout_kills_all_processes_of_a_job_even_those_that_do_not_listen(workers: Workers) -> None:
    worker = workers.start(*ALONE)
    [first] = await workers.enqueue("apart")
    await workers.over(first, 20, worker)  # from now on a child comes at once, in time to have its own
    [ref] = await workers.enqueue("late", timeout=2.0, max_attempts=1)

    job = await workers.over(ref, 20, worker)

    assert told(job)[:2] == ("TRANSIENT", "timeout")
    await nobody(workers.noted("brood"))


async def test_a_cancelled_job_loses_its_process_and_nobody_else_does(workers: Workers) -> None:
    [other] = await workers.enqueue("apart", seconds=1.8)
    [ref] = await workers.enqueue("brood", seconds=600.0)
    worker = workers.start(*ALONE)
    await workers.begun(other, worker)
    pids = await until_async(lambda: workers.noted("brood"), 20, "its processes", worker.log)
    await workers.store.cancel([ref])

    await nobody(pids)
    job = await workers.job(ref)
    assert (job.status, job.error and job.error.code) == (Status.FAILED, "cancelled")
    assert (await workers.over(other, 20, worker)).attempts == 1


async def test_a_handler_that_cannot_be_found_in_the_child_is_reported(workers: Workers) -> None:
    [ref] = await workers.enqueue("made_up", max_attempts=3)
    worker = workers.start(*ALONE, "--burst", app="absent_app:app")
    assert worker.wait(20) == 0

    job = await workers.job(ref)

    assert told(job)[:2] == ("PERMANENT", "not_importable")
    assert job.error
    assert "No module named 'made_up'" in job.error.message
    assert job.attempts == 1


async def test_twenty_isolated_jobs_run_at_the_same_time(workers: Workers) -> None:
    await workers.enqueue("apart", 20, together=20)
    worker = workers.start(*ALONE, "--burst", "--concurrency", "20")
    assert worker.wait(60) == 0

    assert {job.status for job in await workers.jobs()} == {Status.COMPLETED}
    runs = workers.ledger.runs()
    assert len({run.pid for run in runs}) == 20
    assert max(run.begin for run in runs) < min(run.end or 0 for run in runs), "they did not run together"


async def test_when_the_fork_server_is_killed_its_jobs_have_crashed_and_the_next_gets_another(
    workers: Workers,
) -> None:
    refs = await workers.enqueue("apart", 3, gate=workers.gate)
    workers.open(2)
    worker = workers.start(*ALONE)
    for ref in refs:
        await workers.begun(ref, worker)
    first = fork_server_of(worker)
    children = {run.pid for run in workers.ledger.runs()}
    os.kill(first, signal.SIGKILL)
    await nobody(children)

    for ref in refs:
        job = await workers.over(ref, 20, worker)
        assert (job.status, job.attempts, job.crashes) == (Status.COMPLETED, 2, 1)
        assert told(job)[1:] == ("crashed", "the fork server died with it")
    assert fork_server_of(worker) != first


@pytest.fixture
async def isolation() -> AsyncIterator[Isolation]:
    isolation = Isolation("sqlite:///:memory:", [])
    yield isolation
    await isolation.close()


def doze(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


async def run(isolation: Isolation, seconds: float) -> int:
    at = datetime.now(UTC)
    job = Job(
        queue="q",
        id="1",
        task="doze",
        status=Status.PROCESSING,
        payload={"seconds": seconds},
        priority=0,
        run_at=at,
        created_at=at,
        attempts=1,
        max_attempts=1,
        crashes=0,
        fence=1,
    )
    return int(msgspec.json.decode(await isolation.run(Handler(doze, "doze"), Context(job))))


async def fork_server(isolation: Isolation) -> int:
    """Its pid, once it has imported what it needs."""
    assert await run(isolation, 0.0) != os.getpid()
    found = isolation._current
    assert found
    return found.process.pid


async def test_a_job_that_comes_when_the_fork_server_has_just_died_is_not_taken_for_dead(
    isolation: Isolation,
) -> None:
    os.kill(await fork_server(isolation), signal.SIGKILL)
    assert isolation._current
    isolation._current.process.wait(30)  # the event loop stands still: its end has not been heard of

    assert await run(isolation, 0.2) > 0


async def test_a_fork_server_that_hung_up_has_ended_before_there_is_another(isolation: Isolation) -> None:
    """Otherwise nobody would wait for it any more, and the garbage collector complain of it, whenever it runs."""
    pid = await fork_server(isolation)
    first = isolation._current
    assert first
    assert first.listening
    os.kill(pid, signal.SIGSTOP)  # so that its end takes a moment
    first.listening.cancel()
    await asyncio.wait([first.listening])
    asyncio.get_running_loop().call_later(0.1, os.kill, pid, signal.SIGCONT)

    assert await run(isolation, 0.0) > 0
    assert first.process.returncode is not None


async def test_more_jobs_than_a_busy_fork_server_can_be_sent_wait(isolation: Isolation) -> None:
    pid = await fork_server(isolation)
    os.kill(pid, signal.SIGSTOP)
    running = [asyncio.create_task(run(isolation, 0.0)) for _ in range(300)]
    await asyncio.wait(running, timeout=0.5)  # as many as fit are on the way
    os.kill(pid, signal.SIGCONT)

    assert len(set(await asyncio.gather(*running))) == 300


async def test_a_job_that_is_cancelled_when_it_is_born_takes_nobody_with_it(isolation: Isolation) -> None:
    pid = await fork_server(isolation)
    sibling = asyncio.create_task(run(isolation, 2.0))
    await until_async(lambda: len(kin(pid)) == 1, 20, "the sibling")
    for _ in range(20):
        os.kill(pid, signal.SIGSTOP)
        doomed = asyncio.create_task(run(isolation, 600.0))
        await asyncio.sleep(0.01)
        doomed.cancel()
        await asyncio.sleep(0.01)  # both the order and its end are on the way
        os.kill(pid, signal.SIGCONT)
        await asyncio.wait([doomed])
        assert doomed.cancelled()

    assert await sibling


async def test_lifespans_are_entered_in_the_worker_and_in_each_child(workers: Workers) -> None:
    await workers.enqueue("who_has_the_pool", 2)
    [ref] = await workers.enqueue("who_has_the_pool_apart")
    worker = workers.start(*ALONE, "--burst")
    assert worker.wait(20) == 0

    jobs: dict[bool, list[Any]] = {True: [], False: []}
    for job in await workers.jobs():
        jobs[job.ref == ref].append(job.result)
    assert jobs[False] == [[worker.pid], [worker.pid]]
    [[child]] = jobs[True]
    assert child != worker.pid


async def test_the_fork_server_ends_with_a_worker_that_was_killed(workers: Workers) -> None:
    """Without a supervisor, which would do it, too; and although a fork keeps open what was open."""
    [ref] = await workers.enqueue("brood", seconds=600.0)
    worker = workers.start(*ALONE)
    await workers.begun(ref, worker)
    [fork] = await workers.enqueue("litter", how="fork")
    await workers.over(fork, 20, worker)
    pids = await until_async(lambda: workers.noted("brood"), 20, "its processes", worker.log)
    server = fork_server_of(worker)
    assert all(map(alive, [server, *pids]))
    worker.kill()

    await nobody([server, *pids])
    assert (await workers.job(ref)).status is Status.PROCESSING
