"""What can be wrong with the file itself, and how to fix it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from unstuck.protocol.operators import Finding
from unstuck.stores.shared.events import MOST_BROKEN, broken
from unstuck.stores.shared.statements import statements
from unstuck.stores.sqlite.connection import MIGRATIONS
from unstuck.stores.sqlite.migrate import missing, version
from unstuck.stores.sqlite.writer import Transaction

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "ceph", "glusterfs")


def checkup(tx: Transaction, path: str, *, deep: bool) -> list[Finding]:
    found = [*_schema(tx), *_durability(tx), *_file(Path(path)), *_pages(tx)]
    return found + _rules(tx) if deep else found


def _rules(tx: Transaction) -> list[Finding]:
    return [broken(*row) for row in tx.rows("verify", limit=MOST_BROKEN)]


def _schema(tx: Transaction) -> list[Finding]:
    found, newest = version(tx), len(statements(*MIGRATIONS))
    if found < newest:
        return [Finding("warning", f"schema version {found} of {newest}", "run: unstuck init")]
    if found == newest and (gone := missing(tx)):
        what = f"indexes that are missing: {', '.join(gone)}: jobs are found slowly, or twice"
        return [Finding("failure", what, "run: unstuck init")]
    return [Finding("ok", f"schema version {found}")]


def _durability(tx: Transaction) -> list[Finding]:
    [(mode,)] = tx.text("PRAGMA journal_mode")
    if mode != "wal":
        return [
            Finding("failure", f"journal_mode is {mode}", "let no other program change it; it must be wal")
        ]
    return [Finding("ok", "write-ahead log; what is acknowledged is on the disk (synchronous=FULL)")]


def _file(path: Path) -> list[Finding]:
    found = []
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        found.append(Finding("warning", f"others may read the file (mode {mode:o})", f"chmod 600 {path}"))
    if (kind := _file_system(path)) in _NETWORK:
        fix = "move it to a local disk: locks do not work reliably over a network"
        found.append(Finding("failure", f"the file is on a network file system ({kind})", fix))
    free = os.statvfs(path.parent)
    if free.f_bavail * free.f_frsize < 256 * 1024 * 1024:
        found.append(
            Finding("warning", "less than 256 MiB are free on its disk", "make room before it is full")
        )
    return found


def _file_system(path: Path) -> str:
    """The kind of file system that a file is on, if the operating system shows it."""
    best, kind = "", ""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, where, this, *_ = line.split()
        if path.resolve().is_relative_to(where) and len(where) >= len(best):
            best, kind = where, this
    return kind


def _pages(tx: Transaction) -> list[Finding]:
    [(result,)] = tx.text("PRAGMA quick_check(1)")
    if result == "ok":
        return [Finding("ok", "no damage in the file")]
    return [
        Finding(
            "failure", f"the file is damaged: {result}", "stop all workers and restore a backup", broken=True
        )
    ]
