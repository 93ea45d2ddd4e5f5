"""Defects found in review. Each test fails on the code as it was (0117793) and says what is wrong with it."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until_async
from support.work import burst

from unstuck import Rate, Status, StoreUnavailable, Unstuck, Worker, current_job, kin
from unstuck.context import Context
from unstuck.errors import Permanent, StoreDamaged
from unstuck.handler import Handler
from unstuck.isolate import Crashed, Isolation
from unstuck.limits import Limits
from unstuck.nursery import Nursery
from unstuck.policy import Policy
from unstuck.reaper import Reaper
from unstuck.store import Share
from unstuck.testing import SQLiteHarness

pytestmark = pytest.mark.anyio


async def ends(running: asyncio.Task[Any], seconds: float) -> bool:
    done, _ = await asyncio.wait([running], timeout=seconds)
    return bool(done)


# ---------------------------------------------------------------------------------------------- batches


async def test_a_batch_that_lost_all_its_leases_is_cancelled(app: Unstuck) -> None:
    """Slots.lose() counts leases that are lost already among the "others", so nobody cancels the handler.

    It keeps its slot for as long as it likes, for jobs that are cancelled or that somebody else runs.
    """
    begun, ended = asyncio.Event(), asyncio.Event()

    @app.batch(2, lease=2.0, heartbeat=0.1)
    async def work(items: list[int]) -> list[None]:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return [None] * len(items)

    handles = await app.enqueue_many([work.call(n) for n in range(2)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 5)
    for handle in handles:
        await handle.cancel()
    try:
        await asyncio.wait_for(ended.wait(), 3)
    finally:
        worker.stop(at_once=True)
        await running


async def test_one_by_one_leaves_out_jobs_whose_lease_is_lost(app: Unstuck) -> None:
    """A batch that failed as a whole is run one by one, also those jobs that were cancelled meanwhile."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    alone: list[int] = []

    @app.batch(3, lease=2.0, heartbeat=0.1)
    async def work(items: list[int]) -> list[None]:
        if len(items) > 1:
            begun.set()
            await go_on.wait()
            raise Permanent("one of them is bad")
        alone.extend(items)
        return [None]

    handles = await app.enqueue_many([work.call(n) for n in range(3)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 5)
    await handles[1].cancel()
    await asyncio.sleep(0.5)  # some beats: the worker knows
    go_on.set()
    await until_async(lambda: _true(len(alone) >= 2), 5, "the others to run")
    await asyncio.sleep(0.2)
    worker.stop()
    await running
    assert alone == [0, 2]


async def _true(value: bool) -> bool:
    return value


async def test_one_by_one_needs_tokens_too(app: Unstuck) -> None:
    """Two requests a minute are allowed; a batch that fails for good makes six at once."""
    calls: list[int] = []

    @app.batch(5, rate=Rate(2, per=60))
    async def work(items: list[int]) -> list[None]:
        calls.append(len(items))
        if len(items) > 1:
            raise Permanent("one of them is bad")
        return [None]

    await app.enqueue_many([work.call(n) for n in range(5)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(1.0)
    worker.stop(at_once=True)
    await running
    assert len(calls) <= 2


async def test_batches_are_leased_ahead_by_what_was_consumed(app: Unstuck) -> None:
    """room() counts jobs, _tokens() multiplies it by the batch size: thousands of jobs are held for two slots.

    DESIGN 5: prefetch is at most what the last 200 ms consumed.
    """

    @app.batch(50)
    async def work(items: list[int]) -> list[None]:
        await asyncio.sleep(0.02)
        return [None] * len(items)

    await app.enqueue_many([work.call(n) for n in range(8000)])
    worker = Worker(app, concurrency=2, grace=0.1)
    running = asyncio.create_task(worker.run())
    most = 0
    for _ in range(100):
        await asyncio.sleep(0.02)
        if hasattr(worker, "_slots"):
            most = max(most, len(worker._slots.held))
    worker.stop(at_once=True)
    await running
    assert most <= 2 * 50 + 500 + 2 * 50


# ----------------------------------------------------------------------------------------------- tokens


async def test_an_idle_worker_of_a_rated_queue_starts_a_new_job_soon(app: Unstuck) -> None:
    """After an empty lease the queue is quiet for 50 ms; the wait begun in them watches no queue at all, for 5 s."""
    started = asyncio.Event()

    @app.task(rate=Rate(100, per=1.0))
    async def job() -> None:
        started.set()

    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(1.0)
    await job.enqueue()
    try:
        await asyncio.wait_for(started.wait(), 2.0)
    finally:
        worker.stop(at_once=True)
        await running


async def test_burst_runs_follow_ups_of_a_rated_queue(app: Unstuck) -> None:
    """A queue that is quiet, because it had nothing 50 ms ago, is not asked again before a burst ends."""
    ran: list[int] = []

    @app.task(rate=Rate(100, per=1.0))
    async def job(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0.02)
        if n < 3:
            current_job().then(job.call(n + 1))

    await job.enqueue(0)
    await burst(app)
    assert ran == [0, 1, 2, 3]


async def test_process_jobs_gives_tokens_back_that_it_did_not_use(app: Unstuck) -> None:
    """lease_first() takes a token for each job; a batch uses one of them, and the others are gone."""
    sizes: list[int] = []

    @app.batch(5, rate=Rate(5, per=60))
    async def work(items: list[int]) -> list[None]:
        sizes.append(len(items))
        return [None] * len(items)

    worker = Worker(app)
    for _ in range(2):
        await app.enqueue_many([work.call(n) for n in range(5)])
        await worker.process_jobs(5)
    assert sizes == [5, 5]


async def test_tokens_that_come_back_early_are_found_by_others(harness: SQLiteHarness) -> None:
    """Whoever asks while another one holds all tokens for a moment stays away for the whole interval."""
    queues = {"default": Policy(rate=Rate(10, per=60.0))}
    one, other = Limits(harness.store, queues), Limits(harness.store, queues)
    assert await one.take(["default"], 10) == {"default": 10}
    assert await other.take(["default"], 10) == {"default": 0}
    await one.give_back()  # there was no job for them
    assert other.next_open() is not None
    assert (other.next_open() or 0.0) <= 5.0


class Slow:
    """A store whose leases take a while, as across an ocean."""

    def __init__(self, store: Any, seconds: float) -> None:
        self._store, self._seconds = store, seconds
        self.leases = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def lease(self, *args: Any) -> Any:
        self.leases += 1
        answer = await self._store.lease(*args)
        await asyncio.sleep(self._seconds)
        return answer


async def test_a_store_slower_than_the_interval_does_not_stop_a_rated_queue(app: Unstuck) -> None:
    """The slack never grows beyond the interval: every ticket is too old, everything is given back, for ever."""
    ran: list[int] = []

    @app.task(rate=Rate(5, per=0.1))
    async def job() -> None:
        ran.append(1)

    await app.enqueue_many([job.call() for _ in range(5)])
    slow = Slow(await app.store(), 0.15)
    app._stores[asyncio.get_running_loop()][app.url] = slow
    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(4.0)
    worker.stop(at_once=True)
    await running
    app._stores[asyncio.get_running_loop()][app.url] = slow._store
    assert ran, f"{slow.leases} leases, and nothing was started"


# ------------------------------------------------------------------------------------------- isolation


def plain_job(seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return os.getpid()


def tell_start(path: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{time.time()}\n")


def with_background(path: str) -> None:
    """A shell that leaves a process running for us, in our own process group."""
    pid = subprocess.run(
        ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True
    ).stdout
    Path(path).write_text(pid.decode().strip())
    time.sleep(60)


def context(function: Any, **payload: Any) -> tuple[Handler, Context]:
    from datetime import UTC, datetime

    from unstuck.model import Job

    now = datetime.now(UTC)
    job = Job(
        queue="q", id="1", task="t", status=Status.PROCESSING, created_at=now, run_at=now, payload=payload
    )
    return Handler(function, "t", isolate=True), Context(job)


def lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


async def file_with_pid(path: Path) -> int:
    async def there() -> str:
        return path.read_text().strip() if path.exists() else ""

    return int(await until_async(there, 10, "the handler to tell"))


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
        await asyncio.sleep(0.3)
        assert not lives(pid)
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
        assert lives(pid)
        await isolation.run(*context(plain_job))
        await asyncio.sleep(0.3)
        assert lives(pid)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await isolation.close()


def test_a_stray_that_may_not_be_killed_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stray of another user (sudo, a setuid program) cannot be killed; end_strays() waits for its end, for ever.

    In the nursery this stops every isolated job of the worker, in the supervisor the supervisor.
    """
    with subprocess.Popen(["sleep", "8"], process_group=0) as stray:

        def refuse(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(kin, "children", lambda: [stray.pid] if stray.poll() is None else [])
        monkeypatch.setattr(os, "kill", refuse)
        monkeypatch.setattr(os, "killpg", refuse)
        thread = threading.Thread(target=kin.end_strays, args=(set(),), daemon=True)
        thread.start()
        thread.join(3)
        stuck = thread.is_alive()
        monkeypatch.undo()
        stray.kill()
    thread.join(3)
    assert not stuck


def test_a_fork_that_fails_costs_one_job_and_not_the_nursery(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of processes fork() fails: the nursery ends with a traceback, and with it all its other jobs."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    ours, theirs = socket.socketpair()
    one, two = socket.socketpair()
    with ours, theirs, one:
        nursery = Nursery(theirs)
        monkeypatch.setattr(os, "fork", refuse)
        try:
            nursery._bear({"number": 1, "place": (__name__, "plain_job"), "task": "t"}, two.detach())
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


async def test_starts_of_isolated_jobs_keep_the_rate(app: Unstuck, tmp_path: Path) -> None:
    """The first isolated job starts when the nursery is up, long after its token was taken; the next at once."""
    path = tmp_path / "starts"
    job = app.task(tell_start, isolate=True, rate=Rate(1, per=1.0))  # type: ignore[arg-type, call-overload]
    await app.enqueue_many([job.call(str(path)) for _ in range(2)])
    await burst(app)
    one, two = map(float, path.read_text().split())
    assert two - one >= 0.99


pool: list[str] = []
crash_app = Unstuck("sqlite:///unused.db")


@crash_app.lifespan
@asynccontextmanager
async def with_pool() -> Any:
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


# -------------------------------------------------------------------------------------------- shutdown


async def test_a_worker_ends_although_handlers_block_the_default_executor(app: Unstuck) -> None:
    """The pulse is left through asyncio.to_thread(join): behind threads that handlers have blocked, for ever.

    Nor are these threads counted as deaf, so the command does not leave with os._exit() either.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    begun, free = asyncio.Event(), threading.Event()

    @app.task
    async def job() -> None:
        begun.set()
        await asyncio.to_thread(free.wait)

    await job.enqueue()
    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 5)
    worker.stop(at_once=True)
    try:
        assert await ends(running, 6)
    finally:
        free.set()
        await running


class Broken:
    """A store that stops answering, or turns out to be damaged, when it is told so."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.error: Exception | None = None
        self.settles = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def settle(self, outcomes: Any) -> Any:
        self.settles += 1
        if self.error:
            raise self.error
        return await self._store.settle(outcomes)


async def test_a_damaged_store_is_not_asked_all_the_time_while_jobs_run(app: Unstuck) -> None:
    """_drain() sends the outbox again and again without a pause while anything runs: a busy loop for the grace."""
    long, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def job(n: int) -> None:
        if n:
            long.set()
            await go_on.wait()
        else:
            await long.wait()
            broken.error = StoreDamaged("the store is damaged")

    broken = Broken(await app.store())
    loop = asyncio.get_running_loop()
    app._stores[loop][app.url] = broken
    await app.enqueue_many([job.call(0), job.call(1)])
    worker = Worker(app, grace=1.0)
    await worker.run()
    go_on.set()
    app._stores[loop][app.url] = broken._store
    assert broken.settles < 20


async def test_the_last_try_of_a_worker_that_ends_at_once_is_no_busy_loop(
    app: Unstuck, caplog: pytest.LogCaptureFixture
) -> None:
    """Told to end at once, stumble() waits no more: for ten seconds the store is asked as fast as it fails."""
    begun = asyncio.Event()

    @app.task
    async def job() -> None:
        begun.set()
        await asyncio.sleep(60)

    broken = Broken(await app.store())
    loop = asyncio.get_running_loop()
    app._stores[loop][app.url] = broken
    await job.enqueue()
    worker = Worker(app, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 5)
    broken.error = StoreUnavailable("away")
    caplog.set_level(logging.CRITICAL)
    worker.stop(at_once=True)
    await asyncio.sleep(1.0)
    asked = broken.settles
    broken.error = None
    await running
    app._stores[loop][app.url] = broken._store
    assert asked < 50


async def test_a_worker_is_buried_again_if_that_failed(harness: SQLiteHarness) -> None:
    """bury() notes a dead worker before its leases are ended: if the store fails just then, nobody tries again."""
    from unstuck.model import NewJob
    from unstuck.model import Worker as Facts

    with subprocess.Popen(["sleep", "60"]) as process:
        ground = kin._ground()
        identity = f"{ground}/{process.pid}/{kin._stat(process.pid)[1]}"
        process.kill()
    await harness.store.heartbeat(Facts(id="dead", host="here", pid=process.pid, identity=identity), [])
    await harness.store.enqueue([NewJob(queue="default", task="t", id="1")])
    await harness.store.lease({"default": Share(600.0, 1)}, 1, "dead")

    class Once:
        failed = False

        def __getattr__(self, name: str) -> Any:
            return getattr(harness.store, name)

        async def reclaim(self, *args: Any, **kwargs: Any) -> Any:
            if not self.failed:
                self.failed = True
                raise StoreUnavailable("away for a moment")
            return await harness.store.reclaim(*args, **kwargs)

    reaper = Reaper(Once())  # type: ignore[arg-type]
    await reaper.begin()
    await reaper._try()
    [counts] = await harness.store.count()
    assert counts.processing == 0


async def test_a_worker_can_be_asked_for_its_health_before_it_runs(app: Unstuck) -> None:
    """get_health_status() is public and raises AttributeError until run() has made the slots."""

    @app.task
    async def job() -> None: ...

    assert Worker(app).get_health_status().status == "HEALTHY"


# ------------------------------------------------------------------------------------------ supervisor

WORKER = """
import os, subprocess, sys, time
from unstuck.supervisor import Told, tell
under, url, mark = sys.argv[-1], os.environ["URL"], os.environ["MARK"]
with open(mark, "a") as file:
    print(os.getpid(), file=file)
place = len(open(mark).read().split())
"""


def supervise(tmp_path: Path, worker: str, parent: str, seconds: float = 15.0, **env: str) -> str:
    """Run a supervisor over a made-up worker in a process of its own; answers with what it printed."""
    mark = tmp_path / "mark"
    mark.touch()
    script = textwrap.dedent(
        """
        import asyncio, os, signal, sys, time
        from pathlib import Path
        from unstuck import kin
        from unstuck import supervisor as module
        from unstuck.supervisor import Supervisor
        argv = [sys.executable, "-c", os.environ["WORKER"]]
        mark = Path(os.environ["MARK"])
        def pids(): return [int(pid) for pid in mark.read_text().split()]
        async def until(check, seconds=8.0):
            end = time.monotonic() + seconds
            while not check() and time.monotonic() < end:
                await asyncio.sleep(0.02)
        """
    ) + textwrap.dedent(parent)
    given = os.environ | {"WORKER": WORKER + textwrap.dedent(worker), "MARK": str(mark)} | env
    given.setdefault("URL", f"sqlite:///{tmp_path}/jobs.db")
    with subprocess.Popen(
        [sys.executable, "-c", script], env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return "HANGS " + process.communicate()[0]
        finally:
            for pid in mark.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


SLEEPS = """
tell(under, Told(f"w{place}", url, 60.0))
time.sleep(60)
"""


def test_a_store_that_cannot_be_opened_does_not_end_the_supervisor(tmp_path: Path) -> None:
    """_speak_for() catches StoreError; a store that cannot be opened is a ConfigError, and kills all workers."""
    said = supervise(
        tmp_path,
        SLEEPS,
        """
        async def main():
            one = Supervisor(argv, processes=2, grace=1.0)
            running = asyncio.create_task(one.run())
            await until(lambda: len(pids()) == 2)
            await asyncio.sleep(0.5)
            os.kill(pids()[0], signal.SIGKILL)
            await asyncio.sleep(2.0)
            print("ENDED" if running.done() else "GOES ON", running)
            one.stop(at_once=True)
            await asyncio.gather(running, return_exceptions=True)
        asyncio.run(main())
        """,
        URL=f"sqlite:///{tmp_path}/gone/jobs.db",
    )
    assert "GOES ON" in said, said[-600:]


def test_a_worker_that_cannot_be_started_does_not_end_the_others(tmp_path: Path) -> None:
    """A fork that fails, as it does when memory is short, ends the supervisor, which kills the healthy workers."""
    said = supervise(
        tmp_path,
        SLEEPS.replace("60.0", "0.0"),
        """
        async def main():
            one = Supervisor(argv, processes=2, grace=1.0)
            running = asyncio.create_task(one.run())
            await until(lambda: len(pids()) == 2)
            await asyncio.sleep(0.5)
            async def refuse(*_, **__): raise BlockingIOError(11, "Resource temporarily unavailable")
            real, asyncio.create_subprocess_exec = asyncio.create_subprocess_exec, refuse
            os.kill(pids()[0], signal.SIGKILL)
            await asyncio.sleep(2.0)
            print("ENDED" if running.done() else "GOES ON", running)
            asyncio.create_subprocess_exec = real
            one.stop(at_once=True)
            await asyncio.gather(running, return_exceptions=True)
        asyncio.run(main())
        """,
    )
    assert "GOES ON" in said, said[-600:]


def test_the_command_ends_if_its_first_worker_cannot_be_started(tmp_path: Path) -> None:
    """supervise() waits for ``up`` only: if run() fails before, it hangs without a worker and without a word."""
    said = supervise(
        tmp_path,
        SLEEPS,
        """
        from unstuck.cli.work import supervise
        from unstuck.settings import Settings
        async def refuse(*_, **__): raise BlockingIOError(11, "Resource temporarily unavailable")
        asyncio.create_subprocess_exec = refuse
        asyncio.run(supervise(argv, Settings()))
        """,
        seconds=6.0,
    )
    assert "HANGS" not in said, said[-600:]


SLOW_START = """
        real = asyncio.create_subprocess_exec
        created = asyncio.Event()
        async def slowly(*args, **options):
            child = await real(*args, **options)
            if len(pids()) >= FROM or FROM == 0:  # as long as the loop is busy in between
                created.set()
                await asyncio.sleep(0.7)
            return child
"""


def test_a_worker_that_is_being_started_is_no_stray(tmp_path: Path) -> None:
    """Between its fork and the end of create_subprocess_exec() a worker is unknown; if another dies then, it is killed."""
    said = supervise(
        tmp_path,
        SLEEPS,
        SLOW_START.replace("FROM", "1")
        + """
        async def main():
            asyncio.create_subprocess_exec = slowly
            one = Supervisor(argv, processes=2, grace=1.0)
            running = asyncio.create_task(one.run())
            await created.wait()
            await until(lambda: len(pids()) == 2)
            os.kill(pids()[0], signal.SIGKILL)
            await asyncio.sleep(0.4)
            print("KILLED" if kin._stat(pids()[1])[0] in ("", "Z") else "LIVES")
            asyncio.create_subprocess_exec = real
            one.stop(at_once=True)
            await asyncio.gather(running, return_exceptions=True)
        asyncio.run(main())
        """,
    )
    assert "LIVES" in said, said[-600:]


def test_a_stop_reaches_a_worker_that_is_being_started(tmp_path: Path) -> None:
    """stop() signals the workers it knows; one that is just being started works on until it is killed."""
    said = supervise(
        tmp_path,
        SLEEPS,
        SLOW_START.replace("FROM", "0")
        + """
        async def main():
            asyncio.create_subprocess_exec = slowly
            one = Supervisor(argv, processes=1, grace=30.0)
            running = asyncio.create_task(one.run())
            await created.wait()
            one.stop()
            done, _ = await asyncio.wait([running], timeout=4.0)
            print("ENDED" if done else "WORKS ON")
            one.stop(at_once=True)
            await running
        asyncio.run(main())
        """,
    )
    assert "ENDED" in said, said[-600:]


def test_the_supervisor_buries_the_orphans_it_inherits(tmp_path: Path) -> None:
    """A subreaper must wait for its orphans. Each background process of a handler leaves a zombie, to the pid limit."""
    said = supervise(
        tmp_path,
        """
        tell(under, Told(f"w{place}", url, 60.0))
        for _ in range(20):
            subprocess.run(["sh", "-c", "sleep 0.2 &"])
        time.sleep(60)
        """,
        """
        async def main():
            one = Supervisor(argv, processes=1, grace=1.0)
            running = asyncio.create_task(one.run())
            await until(lambda: len(pids()) == 1)
            await asyncio.sleep(3.0)
            print("ZOMBIES", sum(kin._stat(pid)[0] == "Z" for pid in kin.children()))
            one.stop(at_once=True)
            await asyncio.gather(running, return_exceptions=True)
        asyncio.run(main())
        """,
    )
    assert "ZOMBIES 0" in said, said[-600:]


def test_the_death_of_one_worker_spares_what_the_others_started(tmp_path: Path) -> None:
    """Orphans of a living worker's handlers come to the supervisor, too; when another worker dies they are killed."""
    said = supervise(
        tmp_path,
        """
        tell(under, Told(f"w{place}", url, 0.0))
        if place == 2:
            subprocess.run(["sh", "-c", f"sleep 30 >/dev/null 2>&1 & echo $! >{mark}.orphan"])
        time.sleep(60)
        """,
        """
        async def main():
            one = Supervisor(argv, processes=2, grace=1.0)
            running = asyncio.create_task(one.run())
            orphan = Path(f"{mark}.orphan")
            await until(lambda: orphan.exists() and orphan.read_text().strip())
            await asyncio.sleep(0.2)
            os.kill(pids()[0], signal.SIGKILL)
            await asyncio.sleep(1.0)
            print("KILLED" if kin._stat(int(orphan.read_text()))[0] in ("", "Z") else "LIVES")
            one.stop(at_once=True)
            await asyncio.gather(running, return_exceptions=True)
        asyncio.run(main())
        """,
    )
    assert "LIVES" in said, said[-600:]


def test_a_stop_during_the_start_is_no_failure(tmp_path: Path) -> None:
    """Until its app is loaded a worker has no signal handler: a gentle stop kills it, is told as a death, and exits 1."""
    said = supervise(
        tmp_path,
        "time.sleep(60)  # imports",
        """
        async def main():
            one = Supervisor(argv, processes=1, grace=5.0)
            running = asyncio.create_task(one.run())
            await until(lambda: len(pids()) == 1)
            one.stop()
            print("CODE", await running)
        asyncio.run(main())
        """,
    )
    assert "CODE 0" in said, said[-600:]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a time namespace")
def test_a_living_process_of_another_time_namespace_is_not_gone(tmp_path: Path) -> None:
    """Start times are told in the reader's time namespace: a worker that lives in another one is declared dead."""
    script = "import time; from unstuck import kin; print(kin.identity(), flush=True); time.sleep(20)"
    argv = ["unshare", "--time", "--boottime", "100000", sys.executable, "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        identity = process.stdout.readline().strip()
        pid = int(identity.split("/")[-2]) if identity else 0
        try:
            if not identity:
                pytest.skip("no time namespace")
            assert lives(pid)
            assert not kin.gone(identity)
        finally:
            if pid:
                os.kill(pid, signal.SIGKILL)


async def test_a_deaf_coroutine_keeps_its_slot(app: Unstuck) -> None:
    """A thread whose time is up keeps its place until it ends; a coroutine that does not listen loses it.

    So one slot runs any number of them at a time, and nobody knows.
    """
    alive, most = 0, 0
    over = asyncio.Event()

    @app.task(timeout=0.1, retry=1)
    async def deaf() -> None:
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()
        alive -= 1

    await app.enqueue_many([deaf.call() for _ in range(3)])
    worker = Worker(app, concurrency=1, grace=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(5.5)
    over.set()
    worker.stop(at_once=True)
    await running
    assert most == 1


async def test_a_quota_that_is_exhausted_stops_what_was_leased_ahead(app: Unstuck) -> None:
    """The queue is paused, but jobs of it that are waiting here are started, each with a request that is refused."""
    from unstuck.errors import QuotaExhausted

    refused = 0

    @app.task
    async def job(n: int) -> None:
        nonlocal refused
        if n >= 1000:
            refused += 1
            raise QuotaExhausted("pay first")

    await app.enqueue_many([job.call(n) for n in range(2000)])
    worker = Worker(app, concurrency=1, grace=1.0)
    running = asyncio.create_task(worker.run())
    jobs = await app.jobs()

    async def paused() -> bool:
        [counts] = await jobs.store.count()
        return counts.paused is not None

    await until_async(paused, 15, "the pause")
    await asyncio.sleep(0.3)
    worker.stop()
    await running
    assert refused <= 2


async def test_a_job_cancelled_at_its_birth_spares_its_siblings() -> None:
    """A child that gets SIGTERM before it has reset its handlers runs the nursery's own: it kills all other jobs.

    Cancel a job while the nursery is about to fork it (it is busy with an import, say) and the order to kill
    comes right behind the birth.
    """
    isolation = Isolation("sqlite:///:memory:", [])
    siblings = [asyncio.create_task(isolation.run(*context(plain_job, seconds=30.0))) for _ in range(2)]
    await asyncio.sleep(1.5)
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


async def test_queues_that_share_a_bucket_do_not_starve_each_other(app: Unstuck) -> None:
    """The first queue takes all tokens of the bucket, though it has no jobs; the second one gets none and stays away.

    When it comes back the first has taken them again: its jobs are never started.
    """
    ran = asyncio.Event()

    @app.task(queue="first", rate=Rate(5, per=0.5, bucket="provider"))
    async def never() -> None: ...

    @app.task(queue="second", rate=Rate(5, per=0.5, bucket="provider"))
    async def job() -> None:
        ran.set()

    await job.enqueue()
    worker = Worker(app, concurrency=10, grace=0.1)
    running = asyncio.create_task(worker.run())
    try:
        await asyncio.wait_for(ran.wait(), 8)
    finally:
        worker.stop(at_once=True)
        await running


async def embed_all(items: list[int]) -> list[int]:
    return items


embed = crash_app.batch(5, name="embed", retry=1, max_crashes=5, queue="embed")(embed_all)


async def test_a_batch_job_that_crashed_runs_in_its_child(harness: SQLiteHarness) -> None:
    """The nursery finds the bare function if the task has another name, and forgets that it takes a batch."""
    async with crash_app.using(harness.url):
        handle = await embed.enqueue(7)
        await harness.store.lease({"embed": Share(20.0, 1)}, 1, "dead worker")
        await Reaper(harness.store).recover(of="dead worker", cause="signal SIGKILL")
        await burst(crash_app)
        job = await (await crash_app.jobs()).get(handle.id)
        assert job.crashes == 1
        assert job.status is Status.COMPLETED, job.error


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


async def test_a_nursery_leaves_the_judgement_of_a_signal_to_its_worker() -> None:
    """systemd sends SIGTERM to all processes of a service: the nursery ends at once, and kills all of its jobs.

    The worker counts them as crashed, while it waits for its grace as it should.
    """
    isolation = Isolation("sqlite:///:memory:", [])
    running = asyncio.create_task(isolation.run(*context(plain_job, seconds=2.0)))
    await asyncio.sleep(1.0)
    assert isolation._current is not None
    isolation._current.process.send_signal(signal.SIGTERM)
    try:
        assert await asyncio.gather(running, return_exceptions=True) != []
        assert running.exception() is None
    finally:
        await isolation.close()


async def test_a_refusal_stops_what_is_being_leased(app: Unstuck) -> None:
    """A lease that was under way when the other side refused us brings jobs that are started all the same."""
    from unstuck.errors import RateLimited

    refused = 0

    @app.task
    async def job(n: int) -> None:
        nonlocal refused
        if n >= 1000:
            refused += 1
            raise RateLimited("later", delay=60)

    await app.enqueue_many([job.call(n) for n in range(3000)])
    worker = Worker(app, concurrency=4, grace=1.0)
    running = asyncio.create_task(worker.run())
    await until_async(lambda: _true(refused > 0), 15, "the refusal")
    await asyncio.sleep(0.5)
    worker.stop()
    await running
    assert refused <= 4
