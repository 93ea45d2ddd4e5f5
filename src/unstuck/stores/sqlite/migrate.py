"""Brings the file's schema up to date, one numbered file after the other."""

from __future__ import annotations

import logging

from unstuck.stores.shared.statements import indexes, needed_by, statements
from unstuck.stores.sqlite.connection import APPLICATION, MIGRATIONS, refuse_newer
from unstuck.stores.sqlite.writer import Transaction

log = logging.getLogger("unstuck.sqlite")

_BOOK = """
CREATE TABLE IF NOT EXISTS migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, at INTEGER NOT NULL) STRICT
"""
_NOTE = "INSERT INTO migration (version, name, at) VALUES (:version, :name, :at)"


def missing(tx: Transaction) -> dict[str, str]:
    """The statements that create the indexes which somebody dropped, by name."""
    there = {name for (name,) in tx.text("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    made = indexes(statements(*MIGRATIONS).values())
    return {name: text for name, text in made.items() if name not in there}


def version(tx: Transaction) -> int:
    """How many migrations were applied. A file that needs a newer release is refused.

    The file's user_version is the version that a release must at least know, because every release refuses a higher one. So
    a migration that older releases can work with does not raise it; a table has what was applied.
    """
    [(needed, booked)] = tx.text(
        "SELECT user_version, EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migration') "
        "FROM pragma_user_version"
    )
    refuse_newer(needed)
    if not booked:  # created by a release for which both numbers were the same
        return int(needed)
    [(applied,)] = tx.text("SELECT max(version) FROM migration")
    return int(applied)


def migrate(tx: Transaction) -> None:
    """Apply what is missing. Runs inside one transaction, so many processes may start at once."""
    begun = version(tx)
    files = statements(*MIGRATIONS)
    tx.text(_BOOK)
    for number, (name, text) in enumerate(files.items(), 1):
        if number > begun:
            tx.text(text)
            tx.text(_NOTE, version=number, name=name, at=tx.now)
    if begun > len(files):
        return  # only a newer release knows which indexes there must be
    for name, text in missing(tx).items():
        tx.text(text)
        log.warning("index %s was missing and has been made again", name)
    tx.text(f"PRAGMA application_id = {APPLICATION}")
    tx.text(f"PRAGMA user_version = {max(map(needed_by, files.values()))}")


def complete(tx: Transaction) -> bool:
    """Whether nothing is missing. This only reads: a process that has nothing to write waits for no other's write."""
    newest = len(statements(*MIGRATIONS))
    return (found := version(tx)) > newest or (found == newest and not missing(tx))
