"""Brings the file's schema up to date, one numbered file after the other."""

from __future__ import annotations

from unstuck_memory.graphs.sqlite.connection import APPLICATION, MIGRATIONS, refuse_newer
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.graphs.statements import statements


def complete(tx: Transaction) -> bool:
    """Whether nothing is missing. This only reads: a process that has nothing to write waits for no other's write."""
    return _version(tx) == len(statements(*MIGRATIONS))


def migrate(tx: Transaction) -> None:
    """Apply what is missing, in one transaction, so that many processes may start at once."""
    begun = _version(tx)
    files = statements(*MIGRATIONS)
    for number, text in enumerate(files.values(), 1):
        if number > begun:
            tx.connection.execute(text)
    tx.connection.execute(f"PRAGMA application_id = {APPLICATION}")
    tx.connection.execute(f"PRAGMA user_version = {len(files)}")


def _version(tx: Transaction) -> int:
    version = int(tx.connection.pragma("user_version"))
    refuse_newer(tx.connection.filename, version)
    return version
