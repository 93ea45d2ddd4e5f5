"""The parent of worker processes: whom it starts again, how it is stopped, and with which exit code it ends."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.kin import processes
from support.processes import Child
from support.waiting import until, until_async
from support.workers import Workers, nobody, worker_of

from unstuck import Status
from unstuck.testing import SQLiteHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

_LOCK = """
import apsw, sys, time
file = apsw.Connection(sys.argv[1])
file.set_busy_timeout(10_000)
file.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


LIFE = """
from contextlib import asynccontextmanager
from unstuck import Unstuck
app = Unstuck("sqlite:///fresh.db")

@app.task
async def send() -> None: ...

@app.lifespan
@asynccontextmanager
async def pool():
    raise RuntimeError("no password for the pool")
    yield
"""


@contextmanager
def locked(harness: SQLiteHarness) -> Iterator[None]:
    """The store's file as another process leaves it that takes long over its transaction."""
    argv = [sys.executable, "-c", _LOCK, harness.url.removeprefix("sqlite:///")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as locker:
        assert locker.stdout
        assert locker.stdout.readline() == b"locked\n"
        yield
        locker.communicate()


def lines(child: Child, pattern: str) -> list[str]:
    return re.findall(pattern, child.log.read_text())


async def stop_twice(child: Child) -> None:
    """Gently, then at once."""
    child.terminate()
    await child.until_line_async("stopping")
    await asyncio.sleep(0.3)  # two within a moment are taken for one
    child.terminate()


async def nothing_is_held(workers: Workers) -> None:
    """Whatever is not done was given back, and nobody counts a crash or an attempt."""
    for job in await workers.jobs():
        expected = (Status.COMPLETED, 1, 0) if job.status is Status.COMPLETED else (Status.PENDING, 0, 0)
        assert ((job.status, job.attempts, job.crashes), job.owner) == (expected, None)


async def test_a_worker_that_dies_again_and_again_is_started_later_and_later(workers: Workers) -> None:
    supervisor = workers.start(app="dying_app:app")
    until(lambda: len(lines(supervisor, "starting another worker in")) >= 4, 60, "4 deaths", supervisor.log)

    pauses = lines(supervisor, r"starting another worker in ([0-9.]+) s")
    assert pauses[:4] == ["0.0", "0.5", "1.0", "2.0"]
    assert "died: exit code 9" in supervisor.log.read_text()
    supervisor.terminate()  # in the middle of a pause
    assert supervisor.wait(20) == 0


async def test_a_store_that_hangs_does_not_hold_up_the_next_worker(
    workers: Workers, harness: SQLiteHarness
) -> None:
    [ref] = await workers.enqueue("step", seconds=600.0, max_crashes=1)
    supervisor = workers.start()
    await workers.begun(ref, supervisor)
    with locked(harness):
        os.kill(worker_of(supervisor), signal.SIGKILL)
        await supervisor.until_line_async("starting another worker in 0.0 s", 10)

    job = await workers.over(ref, 30, supervisor)
    assert job.error
    assert (job.status, job.error.reason) == (Status.FAILED, "signal SIGKILL")


async def test_a_lifespan_that_fails_is_tried_later_and_later(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "life.py").write_text(LIFE)
    supervisor = workers.start(app="life:app")
    until(lambda: len(lines(supervisor, "starting another worker in")) >= 3, 60, "3 tries", supervisor.log)

    assert lines(supervisor, r"starting another worker in ([0-9.]+) s")[:3] == ["0.0", "0.5", "1.0"]
    assert not lines(supervisor, "(?m)^Traceback|will try again|will run out")
    supervisor.terminate()
    supervisor.wait(20)


async def test_a_halt_is_never_answered_with_a_restart(workers: Workers) -> None:
    [ref] = await workers.enqueue("broken_ground")
    supervisor = workers.start("--processes", "1")

    assert supervisor.wait(20) == 3
    job = await workers.job(ref)
    assert job.status is Status.FAILED
    assert job.error
    assert job.error.category == "CRITICAL"
    assert len(lines(supervisor, "takes long")) == 1
    assert not supervisor.says("died|starting another")


async def test_a_handler_that_ends_its_worker_does_not_pass_for_a_worker_that_meant_to(
    workers: Workers,
) -> None:
    """Exit codes that mean something when the worker itself chooses them."""
    supervisor = workers.start()
    for code in ("0", "2", "3"):
        [ref] = await workers.enqueue("poison", how=code, max_attempts=2)

        job = await workers.over(ref, 60, supervisor)  # each death makes the next start come later

        assert job.error
        assert (job.status, job.crashes, job.error.reason) == (Status.FAILED, 2, f"exit code {code}")
        assert supervisor.says(f"died: exit code {code}")
    [after] = await workers.enqueue("step", seconds=0.0)
    assert (await workers.over(after, 60, supervisor)).status is Status.COMPLETED


async def test_a_bad_app_is_reported_once_however_many_processes_there_should_be(workers: Workers) -> None:
    supervisor = workers.start("--processes", "4", app="broken_app:app")

    assert supervisor.wait(20) == 2
    told = supervisor.log.read_text().splitlines()
    assert len(told) == 1
    assert "no password is set (at broken_app.py, line 3)" in told[0]


async def test_a_burst_of_several_processes_ends_with_0(workers: Workers) -> None:
    await workers.enqueue("step", 20, seconds=0.05)
    supervisor = workers.start("--burst", "--processes", "3")

    assert supervisor.wait(20) == 0
    assert {job.status for job in await workers.jobs()} == {Status.COMPLETED}


async def test_sigterm_before_the_worker_has_begun_ends_with_0(workers: Workers, tmp_path: Path) -> None:
    supervisor = workers.start(app="sleeping_app:app")
    until((tmp_path / "loading").exists, 20, "the app to be loaded", supervisor.log)
    family = supervisor.family()
    assert len(family) == 2
    supervisor.terminate()

    assert supervisor.wait(20) == 0
    assert not supervisor.says("died")
    await nobody(family)


async def test_sigterm_when_idle_ends_with_0(workers: Workers) -> None:
    supervisor = workers.start("--processes", "2")
    until(lambda: len(lines(supervisor, "takes long")) == 2, 20, "both to be up", supervisor.log)
    family = supervisor.family()
    supervisor.terminate()

    assert supervisor.wait(20) == 0
    await nobody(family)


async def test_sigterm_lets_all_kinds_of_handlers_end_and_gives_back_what_waits(workers: Workers) -> None:
    kinds = ("step", "hold", "apart")
    refs = [(await workers.enqueue(task, gate=workers.gate, priority=9))[0] for task in kinds]
    await workers.enqueue("step", 20, seconds=600.0)
    supervisor = workers.start("--concurrency", "3")
    for ref in refs:
        await workers.begun(ref, supervisor)
    family = supervisor.family()
    supervisor.terminate()
    await supervisor.until_line_async("takes no more jobs")
    workers.open(1)

    assert supervisor.wait(20) == 0
    await nothing_is_held(workers)
    assert {(await workers.job(ref)).status for ref in refs} == {Status.COMPLETED}
    await nobody(family)


async def test_sigterm_gives_back_what_was_leased_ahead(workers: Workers) -> None:
    await workers.enqueue("step", 900, seconds=0.05)  # more than are done before we have stopped it
    supervisor = workers.start()
    await until_async(lambda: len(workers.ledger.runs()) > 100, 20, "a steady flow", supervisor.log)
    supervisor.terminate()

    assert supervisor.wait(20) == 0
    await nothing_is_held(workers)
    started = {run.job for run in workers.ledger.runs()}
    given_back = {event.job for event in await workers.store.events(limit=1000) if event.type == "released"}
    assert given_back - started, "nothing was leased ahead: the test proves nothing"


async def test_a_second_sigterm_gives_all_kinds_of_handlers_back_at_once(workers: Workers) -> None:
    refs = [(await workers.enqueue(task, seconds=600.0))[0] for task in ("step", "hold", "apart")]
    supervisor = workers.start("--grace", "600")
    for ref in refs:
        await workers.begun(ref, supervisor)
    family = supervisor.family()
    await stop_twice(supervisor)

    assert supervisor.wait(20) == 0
    assert {job.status for job in await workers.jobs()} == {Status.PENDING}
    await nothing_is_held(workers)
    await nobody(family)


async def test_when_the_grace_is_over_the_rest_is_given_back(workers: Workers) -> None:
    refs = [(await workers.enqueue(task, seconds=600.0))[0] for task in ("step", "hold", "apart")]
    supervisor = workers.start("--grace", "0.5")
    for ref in refs:
        await workers.begun(ref, supervisor)
    supervisor.terminate()

    assert supervisor.wait(20) == 0
    assert {job.status for job in await workers.jobs()} == {Status.PENDING}
    await nothing_is_held(workers)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
    ],
)
async def test_a_signal_to_all_processes_of_a_service_stops_it_gently(
    workers: Workers, number: signal.Signals
) -> None:
    """As systemd does it: to parent, workers, fork server and isolated jobs alike."""
    kinds = ("step", "hold", "apart", "apart")
    refs = [(await workers.enqueue(task, gate=workers.gate))[0] for task in kinds]
    supervisor = workers.start("--processes", "2")
    for ref in refs:
        await workers.begun(ref, supervisor)
    until(lambda: len(lines(supervisor, "takes long")) == 2, 20, "both to be up", supervisor.log)
    family = supervisor.family()
    assert len(family) >= 6
    for pid in sorted(family, reverse=True):
        os.kill(pid, number)
    until(lambda: len(lines(supervisor, "takes no more jobs")) == 2, 20, "both to hear", supervisor.log)
    workers.open(1)

    assert supervisor.wait(20) == 0
    assert [(job.status, job.attempts, job.crashes) for job in await workers.jobs()] == [
        (Status.COMPLETED, 1, 0)
    ] * 4
    await nobody(family)


async def test_sigterm_while_the_store_is_locked_leaves_no_lease(
    workers: Workers, harness: SQLiteHarness
) -> None:
    kinds = ("step", "hold", "apart")
    refs = [(await workers.enqueue(task, gate=workers.gate, priority=9))[0] for task in kinds]
    await workers.enqueue("step", 10, seconds=600.0)
    supervisor = workers.start("--concurrency", "4", "--grace", "3")
    for ref in refs:
        await workers.begun(ref, supervisor)
    with locked(harness):
        supervisor.terminate()
        await supervisor.until_line_async("takes no more jobs")
        workers.open(1)
        await until_async(lambda: workers.ended() == 3, 10, "the jobs to end", supervisor.log)
        await asyncio.sleep(3.5)  # beyond the grace: there is nothing left but to tell the store
        assert supervisor.exit_code is None, "it ended and took the outcomes with it"

    assert supervisor.wait(15) == 0
    await nothing_is_held(workers)
    assert {(await workers.job(ref)).status for ref in refs} == {Status.COMPLETED}


async def test_sigterm_while_the_store_is_locked_before_the_start_ends_with_0(
    workers: Workers, harness: SQLiteHarness
) -> None:
    with locked(harness):
        supervisor = workers.start("--grace", "1")
        await until_async(lambda: len(supervisor.family()) > 1, 10, "the worker", supervisor.log)
        await asyncio.sleep(1.0)
        supervisor.terminate()
        await asyncio.sleep(1.0)

    assert supervisor.wait(20) == 0


async def test_ctrl_c_reaches_the_parent_alone(workers: Workers) -> None:
    [ref] = await workers.enqueue("step", seconds=1.0)
    supervisor = workers.start()
    await workers.begun(ref, supervisor)
    worker = worker_of(supervisor)
    assert processes()[worker].group != processes()[supervisor.pid].group
    os.killpg(supervisor.pid, signal.SIGINT)

    assert supervisor.wait(20) == 0  # before its grace would be over, which is 30 s
    assert (await workers.job(ref)).status is Status.COMPLETED
