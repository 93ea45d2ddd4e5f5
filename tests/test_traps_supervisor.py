"""What an adversarial reader found in the supervisor and in judging who is dead: each stays closed."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from support.kin import alive
from support.waiting import until

from unstuck import kin

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.long]


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


def test_what_somebody_leaves_who_is_about_to_end_is_killed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a one has no environment any more, and bears no mark: end_strays() took it for a stranger, and was done
    before the kernel had given it the children of the dying. They then lived on for ever."""
    with (
        subprocess.Popen(["true"]) as dying,
        subprocess.Popen(["sleep", "60"], env={"MARK": "ours"}, process_group=0) as left,
        subprocess.Popen(["sleep", "60"], env={}, process_group=0) as stranger,
    ):
        until(lambda: not alive(dying.pid), 10, "it to be dead")
        until(lambda: b"MARK=ours" in Path(f"/proc/{left.pid}/environ").read_bytes(), 10, "its mark")
        seen = [[dying.pid, stranger.pid]]
        monkeypatch.setattr(
            kin,
            "children",
            lambda: seen.pop() if seen else [left.pid, stranger.pid] if alive(left.pid) else [],
        )
        monkeypatch.setattr(kin, "bury", lambda known: [])

        assert kin.end_strays(set(), "MARK=ours") == {left.pid}

        assert left.wait(10) == -signal.SIGKILL
        assert alive(stranger.pid)
        stranger.kill()


WORKER = """
import os, subprocess, sys, time
from unstuck.supervisor import Told, telling
kept = []
def tell(under, told):
    kept.append(telling(under, told))
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
        from unstuck import kin
        from unstuck import supervisor as module
        from unstuck.supervisor import Supervisor
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
            done, _ = await asyncio.wait([running], timeout=20.0)  # before its grace would be over
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
        open(f"{mark}.left", "w").close()
        time.sleep(60)
        """,
        """
        async def main():
            one = Supervisor(argv, processes=1, grace=1.0)
            running = asyncio.create_task(one.run())
            await until(Path(f"{mark}.left").exists)
            await until(lambda: kin.children() == pids())  # those that run and those that ended
            print("CHILDREN", len(kin.children()))
            one.stop(at_once=True)
            await asyncio.gather(running, return_exceptions=True)
        asyncio.run(main())
        """,
    )
    assert "CHILDREN 1" in said, said[-600:]


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
            assert alive(pid)
            assert not kin.gone(identity)
        finally:
            if pid:
                os.kill(pid, signal.SIGKILL)
