"""What was told of rows before: how often their workers were lost, and by whom they are held."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import psycopg

from unstuck.stores.postgres.adopted.careful import asking, carefully
from unstuck.stores.postgres.adopted.rows import Found, Past
from unstuck.stores.postgres.adopted.table import Table
from unstuck.stores.postgres.plainly import said
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Step

log = logging.getLogger("unstuck.reaper")
TIMEOUT = "5s"  # to read events that no index leads to; recovery does not wait for it any longer


def histories(table: Table, found: Sequence[Found]) -> Step[dict[str, Past]]:
    """What is known of rows; nothing if it cannot be read."""
    if not found or table.events.why:
        return {}
    answer = yield from carefully(_ask(table, [row.id for row in found]))
    if isinstance(answer, psycopg.DatabaseError):
        log.warning("the events of table %s cannot be read: %s", table.layout.table, said(answer))
        return {}
    return answer


def _ask(table: Table, ids: list[str]) -> Step[dict[str, Past]]:
    yield Query(f"SET LOCAL statement_timeout = '{TIMEOUT}'", {})
    answer = yield from asking(Query(table.text("history"), {"ids": ids, "table": table.layout.table}))
    yield Query("SET LOCAL statement_timeout TO DEFAULT", {})
    return {str(row[0]): Past.told(row) for row in answer}
