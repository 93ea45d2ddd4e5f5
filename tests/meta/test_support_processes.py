"""Children that are waited for, paused and killed for real."""

import signal
import sys
from pathlib import Path

import pytest
from support.processes import Child, Reach, alive, kin, until

HEARTBEAT = "import time\nwhile True: print('beat', flush=True); time.sleep(0.005)"
DEAF = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
)
FAMILY = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
near, far = subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True, env={env})
print("family", near.pid, far.pid, flush=True)
time.sleep(60)
"""


def python(program: str, log: Path) -> Child:
    return Child([sys.executable, "-c", program], log)


def family_of(child: Child) -> set[int]:
    _, near, far = child.until_line("^family ").split()
    return {int(near), int(far)}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "child.log"


def test_a_child_leads_its_own_group_and_its_exit_code_is_kept(log: Path) -> None:
    with python("import os; print(os.getpgrp(), os.getsid(0)); os._exit(7)", log) as child:
        assert child.wait() == 7
        assert child.says("") == f"{child.pid} {child.pid}"
    assert child.exit_code == 7


def test_stderr_and_added_environment_reach_the_log(log: Path) -> None:
    program = "import os, sys; print(os.environ['COLOUR'], file=sys.stderr)"
    with Child([sys.executable, "-c", program], log, env={"COLOUR": "green"}) as child:
        assert child.until_line("gre+n") == "green"


def test_a_second_child_is_not_credited_with_the_lines_of_the_first(log: Path) -> None:
    with python("print('ready')", log) as first:
        first.wait()
    with python("import time; time.sleep(60)", log) as second:
        assert first.says("ready") == "ready"
        assert second.says("ready") is None


def test_waiting_for_a_line_ends_with_the_child(log: Path) -> None:
    gone = pytest.raises(AssertionError, match=r"(?s)ended with 3 before 'ready'.*oops")
    with python("print('oops'); raise SystemExit(3)", log) as child, gone:
        child.until_line("ready", timeout=60)


def test_a_paused_child_does_nothing_until_resumed(log: Path) -> None:
    with python(HEARTBEAT, log) as child:
        child.until_line("beat")
        child.pause()
        size = log.stat().st_size
        with pytest.raises(AssertionError):
            until(lambda: log.stat().st_size > size, 0.05, "a beat")

        child.resume()
        until(lambda: log.stat().st_size > size, 5, "a beat", log)
        assert child.exit_code is None


def test_a_dead_child_cannot_be_paused(log: Path) -> None:
    with python("", log) as child:
        child.wait()
        with pytest.raises(AssertionError, match="nothing to pause"):
            child.pause()


def test_terminate_can_be_ignored_and_kill_cannot(log: Path) -> None:
    with python(DEAF, log) as child:
        child.until_line("deaf")
        child.terminate()
        with pytest.raises(AssertionError, match="the end of <Child"):
            child.wait(0.03)
        assert child.kill() == -signal.SIGKILL
        assert not alive(child.pid)


@pytest.mark.parametrize(("to", "survivors"), [("process", 2), ("group", 1), ("family", 0)])
def test_kill_reaches_as_far_as_it_is_asked_to(log: Path, to: Reach, survivors: int) -> None:
    with python(FAMILY.format(env={}), log) as child:
        family = family_of(child)
        assert kin(child.pid) == family
        child.kill(to)
        assert len([pid for pid in family if alive(pid)]) == survivors
    assert not any(alive(pid) for pid in family)


def test_a_paused_family_is_not_left_behind(log: Path) -> None:
    with python(FAMILY.format(env={}), log) as child:
        family = family_of(child)
        assert child.family() == {child.pid, *family}
        child.pause("family")
    assert not any(alive(pid) for pid in family)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="such orphans are found through /proc")
def test_orphans_of_a_child_that_ended_by_itself_are_found(log: Path) -> None:
    with python(FAMILY.format(env=None).replace("time.sleep(60)\n", "exit()\n"), log) as child:
        child.wait()
        family = family_of(child)
        assert child.family() == family
    assert not any(alive(pid) for pid in family)
