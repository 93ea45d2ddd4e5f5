"""Brings the file's schema up to date, one numbered file after the other."""

from __future__ import annotations

from unstuck.errors import SchemaError
from unstuck.stores.sqlite.connection import APPLICATION
from unstuck.stores.sqlite.writer import Transaction
from unstuck.stores.statements import statements


def migrate(tx: Transaction) -> None:
    """Apply what is missing. Runs inside one transaction, so many processes may start at once."""
    [(version,)] = tx.text("PRAGMA user_version")
    files = statements("unstuck.stores.sqlite.migrations", ".sql")
    if version > len(files):
        raise SchemaError(
            f"the store's schema is version {version}, this release knows up to {len(files)}: upgrade unstuck"
        )
    for name in list(files)[version:]:
        tx.text(files[name])
    tx.text(f"PRAGMA application_id = {APPLICATION}")
    tx.text(f"PRAGMA user_version = {len(files)}")
