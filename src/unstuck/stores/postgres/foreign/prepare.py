"""What a foreign table lacks, and the SQL that adds it without blocking others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from psycopg import errors
from psycopg.sql import Literal

from unstuck.protocol.errors import SchemaError, StoreUnavailable
from unstuck.stores.postgres.connections import Connection
from unstuck.stores.postgres.foreign.events import Events, beside
from unstuck.stores.postgres.foreign.layout import NAMES, OPTIONAL, Layout
from unstuck.stores.postgres.foreign.table import columns_of, events_of, quoted
from unstuck.stores.postgres.rows import Query, Row
from unstuck.stores.postgres.steps import Step
from unstuck.stores.shared.statements import statements

TIME = "timestamp with time zone"
PLAIN, PARTITIONED = "r", "p"  # kinds of tables; indexes of the second cannot be built while others work
# All of them nullable or with a default, so that the product does not notice. Other columns are up to the product.
TYPES = {
    "owner": "text", "lease": TIME, "beat": TIME, "attempts": "integer NOT NULL DEFAULT 0",
    "max_attempts": "integer", "run_at": TIME, "stage": "text", "expected": "bigint", "fail_code": "text",
    "fail_reason": "text",
}  # fmt: skip
LOCK_TIMEOUT = "2s"  # a statement that waits longer for a table's lock blocks all that wait behind it
TRIES, AGAIN = 10, 3.0
_INDEXES = statements("unstuck.stores.postgres.foreign", "sql")["indexes"]


def preparation(layout: Layout) -> Step[list[str]]:
    """The statements that are needed, in their order; none if the table has everything."""
    kind, found, _ = yield from columns_of(layout.table, layout)
    for name in ("id", "status"):
        if getattr(layout, name) not in found:
            raise SchemaError(
                f"table {layout.table!r} has no column {getattr(layout, name)}: name the column that has it"
                if found
                else f"there is no table {layout.table!r} in this database, or we may not see it"
            )
    indexes = yield Query(_INDEXES, {"table": quoted(layout.table)})
    where = yield from events_of(layout, found[layout.id])
    _, taken, _ = yield from columns_of(layout.events, layout)
    if where.instead or (where.why and taken):  # it exists, but cannot take this table's events
        layout = beside(layout)
    of_kind, events, _ = yield from columns_of(layout.events, layout)
    of_events = yield Query(_INDEXES, {"table": quoted(layout.events)})
    present = {
        name: found[getattr(layout, name)].type
        for name in (*NAMES, *OPTIONAL)
        if getattr(layout, name) in found
    }
    return [
        *_columns(layout, present),
        *(_events(layout, where) if not events else []),
        *(_indexes(layout, TYPES | present, indexes) if kind == PLAIN else []),
        *(
            _event_index(layout, of_events)
            if of_kind in ("", PLAIN) and layout.event_job in (events or [layout.event_job])
            else []
        ),
    ]


async def apply(connection: Connection, sql: Sequence[str]) -> None:
    """Run the statements one by one, each in its own transaction. One that does not get its lock soon is tried again later."""
    try:
        for text in sql:
            # An index that is built concurrently waits for old transactions, but blocks nobody.
            patience = "0" if "CONCURRENTLY" in text else LOCK_TIMEOUT
            await connection.execute(f"SET lock_timeout = '{patience}'".encode())
            await _run(connection, text)
    finally:
        if not connection.closed:
            await connection.execute(b"RESET lock_timeout")


async def _run(connection: Connection, text: str) -> None:
    for _ in range(TRIES):
        try:
            await connection.execute(text.encode())
        except errors.LockNotAvailable:
            await asyncio.sleep(AGAIN)
        except errors.InsufficientPrivilege as error:
            reason = error.diag.message_primary
            raise SchemaError(
                f"the database user may not do this ({reason}): run it as the owner: {text}"
            ) from error
        else:
            return
    raise StoreUnavailable(f"a long transaction keeps the table locked: try again later: {text}")


def _columns(layout: Layout, present: dict[str, str]) -> list[str]:
    missing = [
        f"ADD COLUMN IF NOT EXISTS {quoted(getattr(layout, name))} {type_}"
        for name, type_ in TYPES.items()
        if name not in present
    ]
    return [f"ALTER TABLE {quoted(layout.table)}\n    " + ",\n    ".join(missing)] if missing else []


def _events(layout: Layout, where: Events) -> list[str]:
    job, type_, data, at = (
        quoted(name) for name in (layout.event_job, layout.event_type, layout.event_data, layout.event_at)
    )
    columns = [
        "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        f"{job} text NOT NULL",
        f"{type_} text NOT NULL",
        f"{data} jsonb NOT NULL",
        f"{at} timestamptz NOT NULL DEFAULT clock_timestamp()",
    ]
    listed = ",\n    ".join(columns)
    why = ""
    if where.table != layout.events:
        why = f"-- Events of table {layout.table} cannot be written to {where.table}: {where.why}.\n"
        why += f"-- To have them there, run this instead of what follows: {where.way};\n" if where.way else ""
    return [f"{why}CREATE TABLE IF NOT EXISTS {quoted(layout.events)} (\n    {listed}\n)"]


def _indexes(layout: Layout, types: dict[str, str], found: Sequence[Row]) -> list[str]:
    """An index for the scan and one for the line, unless the table has some that serve."""
    table, status, lease = (quoted(name) for name in (layout.table, layout.status, layout.lease))
    bare = layout.table.rpartition(".")[2]
    begins = [columns for _, valid, _, columns in found if valid]
    wanted: dict[str, str] = {}
    if not any(
        columns[:1] == [layout.lease] or columns[:2] == [layout.status, layout.lease] for columns in begins
    ):
        wanted[f"unstuck_{bare}_lease"] = (
            f"({lease}) WHERE {status} = {Literal(layout.processing).as_string(None)}"
        )
    line = [quoted(getattr(layout, name)) for name in ("run_at", "created") if name in types]
    if types.get("created", types["run_at"]) != types["run_at"]:
        line = line[:1]  # a comparison of two kinds of time depends on the session
    wanted[f"unstuck_{bare}_due"] = (
        f"((coalesce({', '.join(line)}, '-infinity')), {quoted(layout.id)}) "
        f"WHERE {status} = {Literal(layout.queued).as_string(None)}"
    )
    return [text for name, on in wanted.items() for text in _index(name, f"{table} {on}", found)]


def _event_index(layout: Layout, found: Sequence[Row]) -> list[str]:
    if any(valid and columns[:1] == [layout.event_job] for _, valid, _, columns in found):
        return []
    name = f"unstuck_{layout.events.rpartition('.')[2]}_job"
    return _index(name, f"{quoted(layout.events)} ({quoted(layout.event_job)})", found)


def _index(name: str, on: str, found: Sequence[Row]) -> list[str]:
    """An index whose build was not finished is useless: it is dropped and built again."""
    name = name[:63]
    known = {called: (valid, qualified) for called, valid, qualified, _ in found}
    valid, qualified = known.get(name, (None, ""))
    if valid:
        return []
    drop = [] if valid is None else [f"DROP INDEX CONCURRENTLY IF EXISTS {qualified}"]
    return [*drop, f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {quoted(name)} ON {on}"]
