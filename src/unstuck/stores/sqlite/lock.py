"""Who has held the file's write lock for so long that nobody else gets to write."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import apsw

from unstuck.redact import redact
from unstuck.store import Finding
from unstuck.stores.sqlite.connection import connect
from unstuck.stores.sqlite.plainly import speaking_plainly

EVERY = 0.05
WORTH_A_WORD = 1.0  # seconds without a commit; a step of ours takes some milliseconds
TOO_LONG = 5.0
_BYTE = 120  # of the -shm file: the lock byte of whoever writes, in the format of the file
_LOCKS = Path("/proc/locks")


class _Seen(NamedTuple):
    seconds: float  # for which one transaction was seen to have the lock, up to the longest that was watched
    holder: int | None


def held(path: str) -> list[Finding]:
    """Tries for the lock, and lets go of it at once: nothing is written."""
    with speaking_plainly(path):
        connection = connect(path)
        try:
            seconds, holder = _watch(connection, path, TOO_LONG)
        finally:
            connection.close()
    if seconds < WORTH_A_WORD:
        return []
    who, fix = "another process", f"find it: fuser {path}-shm"
    if holder is not None:
        command = _command(holder)
        who = f"process {holder} ({command})" if command else f"process {holder}"
        fix = f"let it commit more often, or end it: kill {holder}"
    if seconds < TOO_LONG:
        return [Finding("warning", f"{who} held the file's write lock for {seconds:.0f} s at a time", fix)]
    told = f"{who} holds the file's write lock, for {seconds:.0f} s or more: nobody else can enqueue, lease or settle"
    return [Finding("failure", told, fix)]


def lasts(path: str, seconds: float) -> bool:
    """Whether one transaction has the lock for as long as that."""
    with speaking_plainly(path):
        connection = connect(path)
        try:
            return _watch(connection, path, seconds).seconds >= seconds
        finally:
            connection.close()


def _watch(connection: apsw.Connection, path: str, longest: float) -> _Seen:
    """Where many write in turns the lock is taken at almost any time; but then somebody commits, and the counter tells."""
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
    """The process that has the lock, where the system tells."""
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
    """The program and, of an interpreter, the script; options may hold secrets."""
    try:
        program, *more = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    script = more[0] if more and not more[0].startswith("-") else ""
    return redact(" ".join(filter(None, (Path(program).name, script))), 100)
