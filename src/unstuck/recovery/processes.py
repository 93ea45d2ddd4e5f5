"""Processes: which process a number means, which end together, and which are left over.

What is special to Linux does nothing elsewhere: then only leases decide which workers are dead.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_DEAD = ("Z", "X")
TRIES = 100  # rounds of killing strays, a few milliseconds each
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def identity() -> str:
    """Boot, pid namespace, pid and start time of this process; empty if any of it cannot be read."""
    namespace = _namespace()
    state, born = _stat(os.getpid())
    return f"{namespace}/{os.getpid()}/{born}" if namespace and state else ""


def is_gone(other: str) -> bool:
    """Whether the process with this identity has certainly ended. Unsure means no."""
    namespace, _, rest = other.rpartition("/")[0].rpartition("/")
    born = other.rpartition("/")[2]
    if not namespace or namespace != _namespace() or not rest.isdecimal():
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
    return _ours(_children("self"))


def descendants() -> set[int]:
    """The children of this process, theirs, and so on."""
    found, new = set[str](), set(_children("self"))
    while new:
        found |= new
        new = {child for pid in new for child in _children(pid)} - found
    return set(_ours(found))


def kill_group(leader: int) -> bool:
    """Kill what is left of a process group; whether there was anything."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_strays(known: set[int], mark: str = "") -> set[int]:
    """Kill children that are none of the known ones, with their groups, and those that they leave to us.

    With a ``mark`` only those are meant that have it in their environment. One that cannot be killed, because it
    is somebody else's or waits for a dead disk, is not waited for.
    """
    ended: set[int] = set()
    for _ in range(TRIES):
        others = [pid for pid in children() if pid not in known]
        strays = [pid for pid in others if not mark or _has_mark(pid, mark)]
        # One that is about to end has no environment any more, and has perhaps not left us its own children yet.
        if not strays and not any(_ending(pid) for pid in others):
            break
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                group = os.getpgid(pid)
                if group not in known and group != os.getpgid(0):
                    kill_group(group)
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
        reaped = reap_zombies(known)
        ended |= {*strays, *(reaped if strays else ())}
    return ended


def reap_zombies(known: set[int]) -> list[int]:
    """Wait for children that have ended and that nobody else waits for; their entries in the process table come free."""
    reaped = []
    for pid in children():
        if pid not in known:
            with suppress(ChildProcessError):
                reaped += [pid] if os.waitpid(pid, os.WNOHANG)[0] else []
    return reaped


def cause_of_death(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _namespace() -> str:
    """Boot and namespaces in which a pid is unique; empty if they cannot be read."""
    try:
        if Path("/proc/self").readlink().name != str(os.getpid()):
            return ""  # this /proc shows another namespace's processes than ours
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Start times depend on the time namespace of the process that reads them, so that one counts, too.
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


def _children(pid: str) -> list[str]:
    """The direct children of a process, all by the numbers that /proc has."""
    found: list[str] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += task.read_text().split()
    return found


def _ours(pids: Iterable[str]) -> list[int]:
    """Our namespace's numbers: in a container /proc may show the host's processes, under the host's numbers."""
    depth = len(_pids("self"))
    return [known[depth - 1] for pid in pids if len(known := _pids(pid)) >= depth]


def _has_mark(pid: int, mark: str) -> bool:
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
    """What /proc has about a process in one line, from its state on; nothing if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
