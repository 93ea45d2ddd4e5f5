"""The fork server behind isolated jobs, and their children: what each survives, and what a child knows of its worker."""

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.kin import alive
from support.waiting import until_async
from support.work import burst

from unstuck import Job, Status, Task, Unstuck
from unstuck.app.context import Context
from unstuck.app.handler import Handler
from unstuck.protocol.leases import Share
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.testing import SQLiteHarness
from unstuck.worker.isolation.forkserver import ForkServer
from unstuck.worker.isolation.parent import Crashed, Isolation

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.long]


def plain_job(seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return os.getpid()


def slow_job(path: str, seconds: float) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(seconds)


def with_background(path: str) -> None:
    """A shell that leaves a process running for us, in our own process group."""
    pid = subprocess.run(
        ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True
    ).stdout
    Path(path).write_text(pid.decode().strip())
    time.sleep(60)


def context(function: Any, **payload: Any) -> tuple[Handler, Context]:
    now = datetime.now(UTC)
    job = Job(
        queue="q", id="1", task="t", status=Status.PROCESSING, created_at=now, run_at=now, payload=payload
    )
    return Handler(function, "t", isolate=True), Context(job)


async def file_with_pid(path: Path) -> int:
    async def there() -> str:
        return path.read_text().strip() if path.exists() else ""

    return int(await until_async(there, 30, "the handler to tell"))


async def test_the_death_of_one_fork_server_is_not_reported_to_the_jobs_of_the_next() -> None:
    """A fork server that died is the end of its own jobs only: jobs of the one that replaced it go on.

    Otherwise they would count as crashed and be requeued while their processes run: each would run twice at a time.
    """
    isolation = Isolation("sqlite:///:memory:", [])
    try:
        await isolation.run(*context(plain_job))
        assert isolation._current is not None
        isolation._current.process.kill()
        time.sleep(0.2)  # a busy loop: it has not seen the end of the socket when the next job comes
        try:
            assert await isolation.run(*context(plain_job, seconds=0.2)) is not None
        except Crashed as error:
            pytest.fail(f"told: {error}")
    finally:
        await isolation.close()


async def test_a_fork_server_that_is_killed_takes_what_its_jobs_started_with_it(tmp_path: Path) -> None:
    """When the fork server is killed, its jobs are requeued, so whatever they started must end with it."""
    isolation = Isolation("sqlite:///:memory:", [])
    path = tmp_path / "pid"
    running = asyncio.create_task(isolation.run(*context(with_background, path=str(path))))
    pid = await file_with_pid(path)
    try:
        assert isolation._current is not None
        isolation._current.process.kill()
        with pytest.raises(Crashed):
            await running
        await until_async(lambda: not alive(pid), 10, "what it started to end")
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        await isolation.close()


async def test_a_job_that_ends_leaves_the_processes_of_others_alone(tmp_path: Path) -> None:
    """Only the orphans of a job that ended are killed with it, not those of jobs that still run."""
    isolation = Isolation("sqlite:///:memory:", [])
    path = tmp_path / "pid"
    running = asyncio.create_task(isolation.run(*context(with_background, path=str(path))))
    try:
        pid = await file_with_pid(path)
        assert alive(pid)
        await isolation.run(*context(plain_job))
        await asyncio.sleep(0.3)
        assert alive(pid)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await isolation.close()


def test_a_fork_that_fails_costs_one_job_and_not_the_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of processes fork() fails: that is the failure of one job, and the fork server goes on."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    ours, theirs = socket.socketpair()
    one, two = socket.socketpair()
    with ours, theirs, one:
        fork_server = ForkServer(theirs, os.getpid(), "sqlite:///:memory:")
        monkeypatch.setattr(os, "fork", refuse)
        try:
            fork_server._bear(
                {"number": 1, "place": (__name__, "plain_job"), "task": "t", "batch": 0}, two.detach()
            )
        finally:
            os.close(fork_server._wake_reader)
            os.close(fork_server._wake_writer)


async def test_a_busy_fork_server_fails_no_job() -> None:
    """While the fork server is busy (a slow import) and the socket's buffer is full, jobs wait for it.

    The control socket stays a blocking one: otherwise jobs would fail with BlockingIOError, each at the cost of an
    attempt, and an order to kill would be dropped.
    """
    isolation = Isolation("sqlite:///:memory:", [])
    await isolation.run(*context(plain_job))
    assert isolation._current is not None
    isolation._current.process.send_signal(signal.SIGSTOP)
    jobs = [asyncio.create_task(isolation.run(*context(plain_job))) for _ in range(330)]
    try:
        done, _ = await asyncio.wait(jobs, timeout=2, return_when=asyncio.FIRST_COMPLETED)
        assert not [job.exception() for job in done]
    finally:
        isolation._current.process.kill()
        isolation._current.process.wait()
        await asyncio.gather(*jobs, return_exceptions=True)
        await isolation.close()


crash_app = Unstuck("sqlite:///unused.db")


pool: list[str] = []


@crash_app.lifespan
@asynccontextmanager
async def with_pool() -> AsyncIterator[None]:
    pool.append("connection")
    yield
    pool.clear()


@crash_app.task(retry=1, max_crashes=5)
async def needs_pool() -> str:
    return pool[0]


async def test_a_job_that_crashed_finds_what_its_lifespan_made(harness: SQLiteHarness) -> None:
    """A job whose worker died runs in a child the next time, and lifespan hooks are entered there, too.

    Otherwise one worker that is killed for its memory would turn all jobs it ran into dead letters, if their
    handlers use a pool or client that a lifespan hook made.
    """
    async with crash_app.using(harness.url):
        handle = await needs_pool.enqueue()
        await harness.store.lease({"default": Share(20.0, 1)}, 1, "dead worker")
        await Reaper(harness.store).recover(of="dead worker", cause="signal SIGKILL")
        await burst(crash_app)
        job = await (await crash_app.jobs()).get(handle.id)
        assert job.crashes == 1
        assert job.status is Status.COMPLETED, job.error


async def test_a_job_cancelled_at_its_birth_spares_its_siblings(tmp_path: Path) -> None:
    """A child that gets SIGTERM before it has handlers of its own ends alone, and none of its siblings with it.

    The order to kill comes right behind the birth when a job is cancelled while the fork server is busy.
    """
    isolation = Isolation("sqlite:///:memory:", [])
    born = [tmp_path / "one", tmp_path / "other"]
    siblings = [
        asyncio.create_task(isolation.run(*context(with_background, path=str(path)))) for path in born
    ]
    for path in born:
        await file_with_pid(path)
    assert isolation._current is not None
    try:
        for _ in range(10):
            isolation._current.process.send_signal(signal.SIGSTOP)
            one = asyncio.create_task(isolation.run(*context(plain_job, seconds=30.0)))
            await asyncio.sleep(0.1)
            one.cancel()
            await asyncio.sleep(0.05)
            isolation._current.process.send_signal(signal.SIGCONT)
            await asyncio.gather(one, return_exceptions=True)
        await asyncio.sleep(0.3)
        assert [job.exception() for job in siblings if job.done()] == []
    finally:
        for job in siblings:
            job.cancel()
        await asyncio.gather(*siblings, return_exceptions=True)
        await isolation.close()


async def embed_all(items: list[int]) -> list[int]:
    return items


embed = crash_app.batch(5, name="embed", retry=1, max_crashes=5, queue="embed")(embed_all)


@crash_app.batch(5, max_crashes=5, queue="embed")
async def answer_with_a_text(items: list[int]) -> Any:
    return "x"


async def after_a_crash(store: Store, batch: Task[[int], Any]) -> Job:
    """A job of a batch whose first worker died."""
    handle = await batch.enqueue(7)
    await store.lease({"embed": Share(20.0, 1)}, 1, "dead worker")
    await Reaper(store).recover(of="dead worker", cause="signal SIGKILL")
    await burst(crash_app)
    job = await handle.job()
    assert job.crashes == 1
    return job


async def test_a_batch_job_that_crashed_runs_in_its_child(harness: SQLiteHarness) -> None:
    """A child finds the task of a batch under the task's own name, and calls it with a list."""
    async with crash_app.using(harness.url):
        job = await after_a_crash(harness.store, embed)
        assert job.status is Status.COMPLETED, job.error


async def test_what_is_no_list_of_answers_is_none_in_a_child_either(harness: SQLiteHarness) -> None:
    """A text of one letter is not a list with one answer: its job fails as it does in the worker."""
    async with crash_app.using(harness.url):
        job = await after_a_crash(harness.store, answer_with_a_text)
        assert job.status is Status.FAILED
        assert job.error is not None
        assert job.error.message.startswith("the batch handler returned a str: a list with one answer")


@crash_app.task(queue="where", isolate=True, retry=1)
async def which_store() -> str:
    """Where would it enqueue?"""
    return crash_app.url


async def test_an_isolated_job_uses_the_store_of_its_worker(harness: SQLiteHarness) -> None:
    """In a child the app has the URL of its worker (--store, UNSTUCK_STORE), not the one that its code names.

    Otherwise what an isolated handler, or any handler whose job has crashed, enqueues would go to another store.
    """
    async with crash_app.using(harness.url):
        handle = await which_store.enqueue()
        await burst(crash_app)
        job = await (await crash_app.jobs()).get(handle.id)
        assert job.result == harness.url


async def test_a_fork_server_leaves_the_judgement_of_a_signal_to_its_worker(tmp_path: Path) -> None:
    """systemd sends SIGTERM to all processes of a service: the fork server goes on until its worker ends it.

    The worker waits for its grace, and the jobs in children have that time, too.
    """
    isolation = Isolation("sqlite:///:memory:", [])
    path = tmp_path / "begun"
    running = asyncio.create_task(isolation.run(*context(slow_job, path=str(path), seconds=1.0)))
    await file_with_pid(path)
    assert isolation._current is not None
    isolation._current.process.send_signal(signal.SIGTERM)
    try:
        await asyncio.gather(running, return_exceptions=True)
        assert running.exception() is None
    finally:
        await isolation.close()
