"""Which process has held the file's write lock for so long that no other one can write."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import apsw

from unstuck.protocol.operators import Finding
from unstuck.stores.sqlite.reopening import ReopeningConnection
from unstuck.text.redact import redact

EVERY = 0.05
WORTH_A_WORD = 1.0  # seconds without a commit; a step of ours takes some milliseconds
TOO_LONG = 5.0
_BYTE = 120  # of the -shm file: the byte that a writer locks, by SQLite's file format
_LOCKS = Path("/proc/locks")


class _Seen(NamedTuple):
    seconds: float  # for which one transaction was seen to have the lock, at most the time it was watched
    holder: int | None


def held(path: str) -> list[Finding]:
    """Takes the lock and releases it at once: nothing is written."""
    seconds, holder = _watched(path, TOO_LONG)
    if seconds < WORTH_A_WORD:
        return []
    who, fix = "another process", f"find it: fuser {path}-shm"
    if holder is not None:
        command = _command(holder)
        who = f"process {holder} ({command})" if command else f"process {holder}"
        fix = f"let it commit more often, or end it: kill {holder}"
    if seconds < TOO_LONG:
        return [Finding("warning", f"{who} held the file's write lock for {seconds:.0f} s at a time", fix)]
    what = f"{who} holds the file's write lock, for {seconds:.0f} s or more: nobody else can enqueue, lease or settle"
    return [Finding("failure", what, fix)]


def lasts(path: str, seconds: float) -> bool:
    """Whether one transaction keeps the lock for so many seconds."""
    return _watched(path, seconds).seconds >= seconds


def _watched(path: str, longest: float) -> _Seen:
    reopening = ReopeningConnection(path)
    try:
        return reopening.use(lambda connection: _watch(connection, path, longest))
    finally:
        reopening.close()


def _watch(connection: apsw.Connection, path: str, longest: float) -> _Seen:
    """With many writers the lock is taken almost always; but then one of them commits, and the change counter shows it."""
    connection.set_busy_timeout(0)
    version = connection.pragma("data_version")
    began, holder = time.monotonic(), None
    while (seconds := time.monotonic() - began) < longest:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            if connection.pragma("data_version") != version:
                break
            holder = holder or _holder(path)
            time.sleep(EVERY)
        else:
            connection.execute("ROLLBACK")
            break
    return _Seen(seconds, holder)


def _holder(path: str) -> int | None:
    """The process that has the lock, if the operating system shows it."""
    try:
        file, lines = Path(f"{path}-shm").stat(), _LOCKS.read_text().splitlines()
    except OSError:
        return None
    ours = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    for line in lines:
        match line.split():
            case [_, "POSIX", _, "WRITE", pid, where, first, last] if where == ours and int(pid) > 0:
                if int(first) <= _BYTE and (last == "EOF" or int(last) >= _BYTE):
                    return int(pid)
    return None


def _command(pid: int) -> str:
    """The program and, of an interpreter, the script. The rest is left out: options may hold secrets."""
    try:
        program, *more = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    script = more[0] if more and not more[0].startswith("-") else ""
    return redact(" ".join(filter(None, (Path(program).name, script))), 100)
