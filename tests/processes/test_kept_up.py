"""A service that is kept up whatever its handlers leave behind, and whoever stops one of its processes."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from support.processes import Child, alive
from support.waiting import until_async
from support.workers import Workers, worker_of

from unstuck import Status, Unstuck, Worker

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# A fork that no Python code sees, and that nobody knows by its environment: it holds all that was open.
STRAY = """
import ctypes, os, time
from unstuck import Unstuck
app = Unstuck(os.environ["UNSTUCK_STORE"])

def overwrite_environment():
    "As setproctitle does it, to have room for a title."
    at = [int(field) for field in open("/proc/self/stat").read().rpartition(")")[2].split()[47:49]]
    ctypes.memset(at[0], 0, at[1] - at[0])

@app.task(queue="long", retry=5)
def leave() -> int:
    overwrite_environment()  # before the fork, because what runs in such a child may wait for ever for the interpreter
    pid = ctypes.CDLL(None).fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid

@app.task(queue="long", retry=5)
async def step() -> int:
    return os.getpid()
"""

STUBBORN = """
import os, time
from unstuck import Unstuck
app = Unstuck(os.environ["UNSTUCK_STORE"])

@app.task(queue="long", heartbeat=0.2, lease=2, timeout=TIMEOUT)
def stay() -> None:
    open("began", "w").close()
    time.sleep(600)
"""

HELPER = """
import os, subprocess, sys
from unstuck import Unstuck
app = Unstuck(os.environ["UNSTUCK_STORE"])
HELPER = subprocess.Popen(["sleep", "600"])
inner = "import subprocess; subprocess.Popen(['sleep', '600']); input()"
NESTED = subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE)

@app.task(queue="long", retry=1, isolate=True)
def use(leave: bool = False) -> list[int]:
    left = subprocess.Popen(["sleep", "600"], start_new_session=True).pid if leave else 0
    return [HELPER.pid, NESTED.pid, left]
"""


def of(child: Child) -> list[int]:
    """The worker processes below a supervisor, by the order in which they came."""
    return [pid for pid in sorted(child.family() - {child.pid}) if b"--under" in _argv(pid)]


def _argv(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def with_a_stray(workers: Workers, folder: Path) -> tuple[Child, int]:
    """A supervisor whose worker was killed after it had left behind somebody who holds all its descriptors."""
    (folder / "stray.py").write_text(STRAY)
    [ref] = await workers.enqueue("leave")
    supervisor = workers.start("--grace", "1", app="stray:app")
    stray = int(str((await workers.over(ref, 60, supervisor)).result))
    assert alive(stray)
    os.kill(worker_of(supervisor), signal.SIGKILL)
    return supervisor, stray


async def test_a_stray_that_holds_the_pipe_does_not_hold_up_the_next_worker(
    workers: Workers, tmp_path: Path
) -> None:
    supervisor, stray = await with_a_stray(workers, tmp_path)
    await supervisor.until_line_async("died: signal SIGKILL")

    [ref] = await workers.enqueue("step")
    assert (await workers.over(ref, 60, supervisor)).status is Status.COMPLETED
    assert alive(stray), "the pipe was held all the while"


async def test_a_stray_that_holds_the_pipe_does_not_hold_up_a_stop(workers: Workers, tmp_path: Path) -> None:
    supervisor, stray = await with_a_stray(workers, tmp_path)
    await supervisor.until_line_async("died: signal SIGKILL")
    supervisor.terminate()

    supervisor.wait(60)
    assert not alive(stray)


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_a_worker_that_somebody_else_stops_is_replaced(workers: Workers, processes: str) -> None:
    [first] = await workers.enqueue("step", gate=workers.gate)
    supervisor = workers.start("--processes", processes)
    await workers.begun(first, supervisor)
    await until_async(lambda: len(of(supervisor)) == int(processes), 30, "all to be up", supervisor.log)
    owner = (await workers.job(first)).owner
    assert owner
    stopped = int(owner.split("-")[-2])
    os.kill(stopped, signal.SIGTERM)
    await supervisor.until_line_async("takes no more jobs")
    workers.open(1)  # it drains as ever

    assert (await workers.over(first, 30, supervisor)).attempts == 1
    await supervisor.until_line_async("was stopped, but not by its supervisor: it is replaced")
    await until_async(
        lambda: len(of(supervisor)) == int(processes) and stopped not in of(supervisor),
        60,
        "another one",
        supervisor.log,
    )
    [after] = await workers.enqueue("step")
    assert (await workers.over(after, 60, supervisor)).status is Status.COMPLETED
    supervisor.terminate()
    assert supervisor.wait(60) == 0


async def test_a_service_whose_worker_is_stopped_before_its_supervisor_ends_with_0(workers: Workers) -> None:
    supervisor = workers.start()
    os.kill(worker_of(supervisor), signal.SIGTERM)
    await supervisor.until_line_async("takes no more jobs")
    supervisor.terminate()

    assert supervisor.wait(60) == 0
    assert not supervisor.says("died")


@pytest.mark.parametrize("timeout", ["None", "900"])
async def test_a_thread_whose_job_was_cancelled_does_not_hold_up_a_stop(
    workers: Workers, tmp_path: Path, timeout: str
) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN.replace("TIMEOUT", timeout))
    [ref] = await workers.enqueue("stay", timeout=None if timeout == "None" else float(timeout))
    supervisor = workers.start("--grace", "1", app="stubborn:app")
    await until_async((tmp_path / "began").exists, 60, "its start", supervisor.log)
    assert await workers.store.cancel([ref]) == 1
    await supervisor.until_line_async("the lease is cancelled")
    began = time.monotonic()
    supervisor.terminate()

    assert supervisor.wait(60) == 0
    assert time.monotonic() - began < 25.0, "it waited until the supervisor would have killed it"
    assert not supervisor.says("does not end|died")


async def test_many_tasks_reach_the_nursery(tmp_path: Path) -> None:
    """What a worker sends it at the start is larger than a socket's buffer."""
    module = tmp_path / "many_tasks_app.py"
    long = "a_name_that_is_not_short_at_all_" * 3
    module.write_text(
        "from unstuck import Unstuck\n"
        f"app = Unstuck('sqlite:///{tmp_path}/jobs.db')\n"
        "@app.task(isolate=True, retry=1)\ndef alone() -> int:\n    return 1\n"
        + "".join(f"@app.task\ndef {long}{number}() -> None: ...\n" for number in range(2000))
    )
    sys.path.insert(0, str(tmp_path))
    try:
        import many_tasks_app  # type: ignore[import-not-found]

        app: Unstuck = many_tasks_app.app
        async with app:
            handle = await many_tasks_app.alone.enqueue()
            running = asyncio.create_task(Worker(app, burst=True).run())
            done, _ = await asyncio.wait([running], timeout=100)
            assert done, "the worker did not get to work"
            assert await handle.result(1) == 1
    finally:
        sys.path.remove(str(tmp_path))


async def test_helpers_that_the_app_starts_when_it_is_imported_outlive_isolated_jobs(
    workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    supervisor = workers.start(app="helper:app")
    seen = []
    for leave in (True, True, False):
        [ref] = await workers.enqueue("use", leave=leave)
        result = (await workers.over(ref, 60, supervisor)).result
        assert isinstance(result, list)
        seen.append(result)
    for *_, left in seen[:2]:  # what jobs leave behind is still killed
        await until_async(lambda: not alive(left), 20, "the end of what a job left", supervisor.log)  # noqa: B023
    helper, nested, _ = seen[0]
    assert [one[:2] for one in seen] == [[helper, nested]] * 3, "the fork server was the same all the while"
    assert alive(helper)
    assert alive(nested)
