"""The recorded history of rows: how often their workers were lost, and who holds them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import psycopg

from unstuck.stores.postgres.driver_errors import message_of
from unstuck.stores.postgres.foreign.careful import asking, carefully
from unstuck.stores.postgres.foreign.rows import Found, Past
from unstuck.stores.postgres.foreign.table import Table
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Step

log = logging.getLogger("unstuck.reaper")
TIMEOUT = "5s"  # for reading events without an index; recovery does not wait longer for them


def histories(table: Table, found: Sequence[Found]) -> Step[dict[str, Past]]:
    """The history of rows by their ids; empty if it cannot be read."""
    if not found or table.events.why:
        return {}
    answer = yield from carefully(_ask(table, [row.id for row in found]))
    if isinstance(answer, psycopg.DatabaseError):
        log.warning("the events of table %s cannot be read: %s", table.layout.table, message_of(answer))
        return {}
    return answer


def _ask(table: Table, ids: list[str]) -> Step[dict[str, Past]]:
    yield Query(f"SET LOCAL statement_timeout = '{TIMEOUT}'", {})
    answer = yield from asking(Query(table.text("history"), {"ids": ids, "table": table.layout.table}))
    yield Query("SET LOCAL statement_timeout TO DEFAULT", {})
    return {str(row[0]): Past.from_row(row) for row in answer}
