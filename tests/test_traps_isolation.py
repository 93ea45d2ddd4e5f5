"""What an adversarial reader found in isolated handlers and their nursery: each stays closed."""

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

from unstuck import Job, Rate, Status, Task, Unstuck
from unstuck.context import Context
from unstuck.handler import Handler
from unstuck.isolate import Crashed, Isolation
from unstuck.nursery import Nursery
from unstuck.reaper import Reaper
from unstuck.store import Share, Store
from unstuck.testing import SQLiteHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.long]


def plain_job(seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return os.getpid()


def slow_job(path: str, seconds: float) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(seconds)


def tell_start(path: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{time.time()}\n")


def far_apart(path: Path) -> bool:
    """Whether two starts of one in 2 s kept them, save for the little by which a child may tell of the first late.

    If the token of the first had been spent on the start of its nursery, the other one would have come at once.
    """
    one, two = map(float, path.read_text().split())
    return two - one >= 1.0


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


async def test_the_death_of_one_nursery_is_not_told_to_the_jobs_of_the_next() -> None:
    """The old nursery's listener tells everybody "your process died", also jobs of the nursery that replaced it.

    They are counted as crashed and requeued, while their processes run: the job runs twice at a time.
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


async def test_a_nursery_that_is_killed_takes_what_its_jobs_started_with_it(tmp_path: Path) -> None:
    """What a job started outlives a nursery that is killed, and the job itself is requeued: it runs twice."""
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
    """end_strays() takes every orphan for one of the job that ended; orphans of jobs that still run are killed."""
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


def test_a_fork_that_fails_costs_one_job_and_not_the_nursery(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of processes fork() fails: the nursery ends with a traceback, and with it all its other jobs."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    ours, theirs = socket.socketpair()
    one, two = socket.socketpair()
    with ours, theirs, one:
        nursery = Nursery(theirs, os.getpid(), "sqlite:///:memory:")
        monkeypatch.setattr(os, "fork", refuse)
        try:
            nursery._bear(
                {"number": 1, "place": (__name__, "plain_job"), "task": "t", "batch": 0}, two.detach()
            )
        finally:
            os.close(nursery._ears)
            os.close(nursery._mouth)


async def test_a_busy_nursery_fails_no_job() -> None:
    """_listen() makes a duplicate of the control socket non-blocking, and with it the socket itself.

    While the nursery is busy (a slow import) and the buffer full, jobs fail with BlockingIOError, each at the
    cost of an attempt, and in _kill() the order to kill is dropped without a word.
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


@pytest.fixture
def slow_nursery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose start takes long: so much longer than a child's that none of these can be taken for it."""
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(1.5)\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.mark.usefixtures("slow_nursery")
async def test_starts_of_isolated_jobs_keep_the_rate(app: Unstuck, tmp_path: Path) -> None:
    """The first isolated job starts when the nursery is up, long after its token was taken; the next at once."""
    path = tmp_path / "starts"
    job = app.task(tell_start, isolate=True, rate=Rate(1, per=2.0))  # type: ignore[call-overload]
    await app.enqueue_many([job.call(str(path)) for _ in range(2)])
    await burst(app)
    assert far_apart(path)


@pytest.mark.usefixtures("slow_nursery")
async def test_starts_of_jobs_that_crashed_before_keep_the_rate(
    app: Unstuck, harness: SQLiteHarness, tmp_path: Path
) -> None:
    """Nobody starts a nursery for a rate alone, so the first one that needs it starts long after its token was taken."""
    path = tmp_path / "starts"
    job = app.task(tell_start, max_crashes=5, rate=Rate(1, per=2.0))  # type: ignore[call-overload]
    await app.enqueue_many([job.call(str(path)) for _ in range(2)])
    assert len(await harness.store.lease({"default": Share(20.0, 2)}, 2, "dead worker")) == 2
    await Reaper(harness.store).recover(of="dead worker", cause="signal SIGKILL")
    await burst(app)
    assert far_apart(path)


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
    """A job whose worker died runs in a child, where no lifespan was entered: the innocent ones fail there.

    One worker that is killed for its memory turns all jobs it ran into dead letters, if their handlers use
    a pool or client that a lifespan hook made.
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
    """A child that gets SIGTERM before it has reset its handlers runs the nursery's own: it kills all other jobs.

    Cancel a job while the nursery is about to fork it (it is busy with an import, say) and the order to kill
    comes right behind the birth.
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
    """The nursery finds the bare function if the task has another name, and forgets that it takes a batch."""
    async with crash_app.using(harness.url):
        job = await after_a_crash(harness.store, embed)
        assert job.status is Status.COMPLETED, job.error


async def test_what_is_no_list_of_answers_is_none_in_a_child_either(harness: SQLiteHarness) -> None:
    """A text of one letter is unpacked like a list of one answer, and the job is completed with it."""
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
    """In the nursery the app has the URL its code names, whatever --store or UNSTUCK_STORE say in the worker.

    What an isolated handler (or any handler whose job has crashed) enqueues goes into another store: it is lost.
    """
    async with crash_app.using(harness.url):
        handle = await which_store.enqueue()
        await burst(crash_app)
        job = await (await crash_app.jobs()).get(handle.id)
        assert job.result == harness.url


async def test_a_nursery_leaves_the_judgement_of_a_signal_to_its_worker(tmp_path: Path) -> None:
    """systemd sends SIGTERM to all processes of a service: the nursery ends at once, and kills all of its jobs.

    The worker counts them as crashed, while it waits for its grace as it should.
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
