"""Processes and their kin: who somebody is beyond a number, who dies with whom, and who is left over.

What is special to Linux does nothing elsewhere: then only leases decide who is dead.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_DEAD = ("Z", "X")
TRIES = 100  # rounds of killing strays, a few milliseconds each
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def identity() -> str:
    """Boot, pid namespace, pid and start time of this process; empty if any of it cannot be read."""
    ground = _ground()
    state, born = _stat(os.getpid())
    return f"{ground}/{os.getpid()}/{born}" if ground and state else ""


def gone(other: str) -> bool:
    """Whether the process with this identity has certainly ended. Unsure means no."""
    ground, _, rest = other.rpartition("/")[0].rpartition("/")
    born = other.rpartition("/")[2]
    if not ground or ground != _ground() or not rest.isdecimal():
        return False  # another host, boot or namespace: its pids mean nothing here
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    state, now = _stat(int(rest))
    return bool(state) and (state in _DEAD or now != born)


def die_with_parent(number: signal.Signals, parent: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends; at once if it has."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def inherit_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that they can be found and ended."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[int]:
    """The direct children of this process, orphans that it inherited among them."""
    found: list[int] = []
    # In a container /proc may show the host's processes, under the host's numbers: take those of our namespace.
    depth = len(_pids("self"))
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += [pids[depth - 1] for pid in task.read_text().split() if len(pids := _pids(pid)) >= depth]
    return found


def end_group(leader: int) -> bool:
    """Kill what is left of a process group; whether there was anything."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_strays(known: set[int], mark: str = "") -> set[int]:
    """Kill children that are none of the known ones, with their groups, and those that they leave to us.

    With a ``mark`` only those are meant that have it in their environment. One that cannot be killed, because it
    is somebody else's or waits for a dead disk, is not waited for.
    """
    ended: set[int] = set()
    for _ in range(TRIES):
        others = [pid for pid in children() if pid not in known]
        strays = [pid for pid in others if not mark or _bears(pid, mark)]
        # Who is about to end bears nothing any more, and has perhaps not left us its own children yet.
        if not strays and not any(_ending(pid) for pid in others):
            break
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                group = os.getpgid(pid)
                if group not in known and group != os.getpgid(0):
                    end_group(group)
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
        buried = bury(known)
        ended |= {*strays, *(buried if strays else ())}
    return ended


def bury(known: set[int]) -> list[int]:
    """Wait for children that have ended and that nobody else waits for; their places in the table come free."""
    buried = []
    for pid in children():
        if pid not in known:
            with suppress(ChildProcessError):
                buried += [pid] if os.waitpid(pid, os.WNOHANG)[0] else []
    return buried


def cause_of_death(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _ground() -> str:
    """In which world a pid means something; empty if it cannot be told."""
    try:
        if Path("/proc/self").readlink().name != str(os.getpid()):
            return ""  # this /proc shows another namespace's processes than ours
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Start times are told in the time namespace of whoever reads them, so it is part of the ground, too.
        spaces = (Path(f"/proc/self/ns/{name}").stat().st_ino for name in ("pid", "time"))
        return f"{boot}/{'/'.join(map(str, spaces))}"
    except OSError:
        return ""


def _pids(pid: str) -> list[int]:
    """A process's number in the namespace that /proc shows and in each one inside of that; none if it ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return []
    lines = [line.split() for line in status.splitlines() if line.startswith("NSpid:")]
    return [int(number) for number in lines[0][1:]] if lines else []


def _bears(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _ending(pid: int) -> bool:
    """Whether a process has given its memory back: all that is left for it is to be dead."""
    fields = _fields(pid)
    return bool(fields) and (fields[0] in _DEAD or fields[20] == "0")


def _stat(pid: int) -> tuple[str, str]:
    """A process's state, and when it started in ticks since the boot; empty if it cannot be read."""
    fields = _fields(pid)
    return (fields[0], fields[19]) if fields else ("", "")


def _fields(pid: int) -> list[str]:
    """What /proc tells of a process in one line, from its state on; nothing if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
