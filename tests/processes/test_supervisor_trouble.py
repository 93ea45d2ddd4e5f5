"""The supervisor over made-up workers: stores and starts that fail, stops at a bad moment, and orphans."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.long]


WORKER = """
import os, subprocess, sys, time
from unstuck.worker.supervisor import StartReport, reporting
kept = []
def tell(under, told):
    kept.append(reporting(under, told))
    kept[-1].__enter__()
under, url, mark = sys.argv[-1], os.environ["URL"], os.environ["MARK"]
with open(mark, "a") as file:
    print(os.getpid(), file=file)
place = open(mark).read().split().index(str(os.getpid())) + 1  # another one may write at the same moment
"""


def supervise(tmp_path: Path, worker: str, parent: str, seconds: float = 60.0, **env: str) -> str:
    """Run a supervisor over a made-up worker in a process of its own; answers with what it printed."""
    mark = tmp_path / "mark"
    mark.touch()
    script = textwrap.dedent(
        """
        import asyncio, os, signal, sys, time
        from pathlib import Path
        from unstuck.recovery import processes
        from unstuck.worker import supervisor as module
        from unstuck.worker.supervisor import Supervisor
        argv = [sys.executable, "-c", os.environ["WORKER"]]
        mark = Path(os.environ["MARK"])
        def pids(): return [int(pid) for pid in mark.read_text().split()]
        async def until(check, seconds=20.0):
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
tell(under, StartReport(f"w{place}", url, 60.0))
time.sleep(60)
"""


def test_a_store_that_cannot_be_opened_does_not_end_the_supervisor(tmp_path: Path) -> None:
    """A supervisor that cannot open the store to report a death starts the next worker all the same."""
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
    """A fork that fails, as it does when memory is short, is tried again later; the healthy workers go on."""
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
    """A worker belongs to its supervisor from the fork on, also before create_subprocess_exec() has returned."""
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
            print("KILLED" if processes._stat(pids()[1])[0] in ("", "Z") else "LIVES")
            asyncio.create_subprocess_exec = real
            one.stop(at_once=True)
            await asyncio.gather(running, return_exceptions=True)
        asyncio.run(main())
        """,
    )
    assert "LIVES" in said, said[-600:]


def test_a_stop_reaches_a_worker_that_is_being_started(tmp_path: Path) -> None:
    """A worker whose start was under way at the stop is stopped as soon as it is known."""
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
            done, _ = await asyncio.wait([running], timeout=20.0)  # before its grace would be over
            print("ENDED" if done else "WORKS ON")
            one.stop(at_once=True)
            await running
        asyncio.run(main())
        """,
    )
    assert "ENDED" in said, said[-600:]


def test_the_supervisor_buries_the_orphans_it_inherits(tmp_path: Path) -> None:
    """A subreaper waits for its orphans: otherwise each background process of a handler would leave a zombie."""
    said = supervise(
        tmp_path,
        """
        tell(under, StartReport(f"w{place}", url, 60.0))
        for _ in range(20):
            subprocess.run(["sh", "-c", "sleep 0.2 &"])
        open(f"{mark}.left", "w").close()
        time.sleep(60)
        """,
        """
        async def main():
            one = Supervisor(argv, processes=1, grace=1.0)
            running = asyncio.create_task(one.run())
            await until(Path(f"{mark}.left").exists)
            await until(lambda: processes.children() == pids())  # those that run and those that ended
            print("CHILDREN", len(processes.children()))
            one.stop(at_once=True)
            await asyncio.gather(running, return_exceptions=True)
        asyncio.run(main())
        """,
    )
    assert "CHILDREN 1" in said, said[-600:]


def test_the_death_of_one_worker_spares_what_the_others_started(tmp_path: Path) -> None:
    """Orphans of a living worker's handlers come to the supervisor, too: it kills only those of the worker that died."""
    said = supervise(
        tmp_path,
        """
        tell(under, StartReport(f"w{place}", url, 0.0))
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
            print("KILLED" if processes._stat(int(orphan.read_text()))[0] in ("", "Z") else "LIVES")
            one.stop(at_once=True)
            await asyncio.gather(running, return_exceptions=True)
        asyncio.run(main())
        """,
    )
    assert "LIVES" in said, said[-600:]


def test_a_stop_during_the_start_is_no_failure(tmp_path: Path) -> None:
    """Until its app is loaded a worker has no signal handler: a gentle stop kills it, and that is no failure."""
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
