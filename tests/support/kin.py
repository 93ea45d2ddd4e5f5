"""Who is running on this machine, and who descends from whom."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the process table. A pid may be used again, but not with the same ``born``."""

    pid: int
    parent: int
    group: int
    state: str
    born: str

    @property
    def stopped(self) -> bool:
        return self.state.startswith("T")


def processes() -> dict[int, Entry]:
    """All living processes by pid. A zombie does not live: it waits to be reaped, perhaps for ever."""
    entries = _from_proc() if (PROC / "self/stat").exists() else _from_ps()
    return {entry.pid: entry for entry in entries if entry.state[0] not in "ZX"}


def alive(pid: int) -> bool:
    return pid in processes()


def kin(pid: int) -> set[int]:
    """Living descendants: children, their children and so on. An orphan of a dead parent is not found."""
    entries = processes().values()
    found: set[int] = set()
    parents = {pid}
    while parents:
        parents = {entry.pid for entry in entries if entry.parent in parents} - found
        found |= parents
    return found


def bearers(mark: str) -> set[int]:
    """Processes started with the entry ``mark`` in their environment; none where there is no /proc."""
    return {int(file.parent.name) for file in PROC.glob("[0-9]*/environ") if mark.encode() in _entries(file)}


def _entries(environ: Path) -> list[bytes]:
    try:
        return environ.read_bytes().split(b"\0")
    except OSError:  # gone meanwhile, or not ours to read
        return []


def _from_proc() -> list[Entry]:
    return [entry for folder in PROC.glob("[0-9]*") if (entry := _stat(int(folder.name)))]


def _stat(pid: int) -> Entry | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:  # ended while we were looking
        return None
    # The command, in parentheses, may itself hold spaces and parentheses.
    state, parent, group, *rest = text.rpartition(")")[2].split()
    return Entry(pid, int(parent), int(group), state, born=rest[16])


def _from_ps() -> list[Entry]:
    command = ["ps", "-A", "-o", "pid=,ppid=,pgid=,state=,lstart="]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [
        Entry(int(pid), int(parent), int(group), state, born)
        for pid, parent, group, state, born in (line.split(maxsplit=4) for line in lines)
    ]
