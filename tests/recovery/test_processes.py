"""Which processes are gone, and which of those they left behind are killed."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.kin import alive
from support.waiting import until

from unstuck.recovery import processes

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_a_stray_that_may_not_be_killed_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the end of a stray of another user (sudo, a setuid program), which cannot be killed.

    In the fork server that would stop every isolated job of the worker, in the supervisor the supervisor.
    """
    with subprocess.Popen(["sleep", "8"], process_group=0) as stray:

        def refuse(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(processes, "children", lambda: [stray.pid] if stray.poll() is None else [])
        monkeypatch.setattr(os, "kill", refuse)
        monkeypatch.setattr(os, "killpg", refuse)
        thread = threading.Thread(target=processes.kill_strays, args=(set(),), daemon=True)
        thread.start()
        thread.join(3)
        stuck = thread.is_alive()
        monkeypatch.undo()
        stray.kill()
    thread.join(3)
    assert not stuck


def test_what_somebody_leaves_who_is_about_to_end_is_killed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is about to end has no environment any more, and so no mark: it may still be one of ours.

    The kernel gives us its children a moment later, so we look until it is gone.
    """
    with (
        subprocess.Popen(["true"]) as dying,
        subprocess.Popen(["sleep", "60"], env={"MARK": "ours"}, process_group=0) as left,
        subprocess.Popen(["sleep", "60"], env={}, process_group=0) as stranger,
    ):
        until(lambda: not alive(dying.pid), 10, "it to be dead")
        until(lambda: b"MARK=ours" in Path(f"/proc/{left.pid}/environ").read_bytes(), 10, "its mark")
        seen = [[dying.pid, stranger.pid]]
        monkeypatch.setattr(
            processes,
            "children",
            lambda: seen.pop() if seen else [left.pid, stranger.pid] if alive(left.pid) else [],
        )
        monkeypatch.setattr(processes, "reap_zombies", lambda known: [])

        assert processes.kill_strays(set(), "MARK=ours") == {left.pid}

        assert left.wait(10) == -signal.SIGKILL
        assert alive(stranger.pid)
        stranger.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a time namespace")
def test_a_living_process_of_another_time_namespace_is_not_gone(tmp_path: Path) -> None:
    """Start times are those of the reader's time namespace: one that differs proves no death."""
    script = "import time; from unstuck.recovery import processes; print(processes.identity(), flush=True); time.sleep(20)"
    argv = ["unshare", "--time", "--boottime", "100000", sys.executable, "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        identity = process.stdout.readline().strip()
        pid = int(identity.split("/")[-2]) if identity else 0
        try:
            if not identity:
                pytest.skip("no time namespace")
            assert alive(pid)
            assert not processes.is_gone(identity)
        finally:
            if pid:
                os.kill(pid, signal.SIGKILL)
