"""Brings the file's schema up to date, one numbered file after the other."""

from __future__ import annotations

import logging

from unstuck.stores.sqlite.connection import APPLICATION, MIGRATIONS, refuse_newer
from unstuck.stores.sqlite.writer import Transaction
from unstuck.stores.statements import indexes, statements

log = logging.getLogger("unstuck.sqlite")


def missing(tx: Transaction) -> dict[str, str]:
    """The statements that make indexes which somebody dropped, by their names."""
    there = {name for (name,) in tx.text("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    made = indexes(statements(MIGRATIONS, ".sql").values())
    return {name: text for name, text in made.items() if name not in there}


def migrate(tx: Transaction) -> None:
    """Apply what is missing. Runs inside one transaction, so many processes may start at once."""
    [(version,)] = tx.text("PRAGMA user_version")
    files = statements(MIGRATIONS, ".sql")
    refuse_newer(version)
    for name in list(files)[version:]:
        tx.text(files[name])
    for name, text in missing(tx).items():
        tx.text(text)
        log.warning("index %s was missing and has been made again", name)
    tx.text(f"PRAGMA application_id = {APPLICATION}")
    tx.text(f"PRAGMA user_version = {len(files)}")


def complete(tx: Transaction) -> bool:
    """Whether nothing is missing. This only reads: nobody waits for another's write who has nothing to write."""
    [(version,)] = tx.text("PRAGMA user_version")
    return version == len(statements(MIGRATIONS, ".sql")) and not missing(tx)
