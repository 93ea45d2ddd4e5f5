"""A table that somebody has locked as a whole does not answer. Nobody waits for it for long, and it is said who that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from psycopg import errors

from unstuck.errors import SchemaError, StoreUnavailable
from unstuck.layout import Layout
from unstuck.store import Finding
from unstuck.stores.postgres import sessions
from unstuck.stores.postgres.adopted.table import quoted
from unstuck.stores.postgres.desk import Desk
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Step
from unstuck.stores.statements import statements

T = TypeVar("T")
PATIENCE = "1s"  # as long as a table may be locked without a word: a migration in good order takes less
_BLOCKING = statements("unstuck.stores.postgres.adopted", ".sql")["blocking"].replace("{who}", sessions.WHO)
_KEEP_READERS_OUT = ("AccessExclusiveLock",)
_KEEP_WRITERS_OUT = (*_KEEP_READERS_OUT, "ExclusiveLock", "ShareRowExclusiveLock", "ShareLock")


class Locked(StoreUnavailable):
    """A table that does not answer now, and the finding that says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.what}; {finding.fix}")
        self.finding = finding


UNSEEN = (Locked, SchemaError)  # what can be wrong with one table, and not with the others


def finding(error: Locked | SchemaError) -> Finding:
    """What a checkup says of a table that cannot be looked at."""
    if isinstance(error, Locked):
        return error.finding
    return Finding("failure", str(error), "name a table that is there, with these columns")


async def briefly(desk: Desk, layout: Layout, step: Callable[[], Step[T]], *, reads: bool = False) -> T:
    """Carry out a step on a table in one transaction that waits for no lock for long; ``reads``: and writes nothing.

    Whoever has several tables to ask loses no more time with one that is locked: the leases of all others run on.
    """

    def brief() -> Step[T]:
        yield Query(f"SET LOCAL lock_timeout = '{PATIENCE}'", {})
        if reads:
            yield Query("SET TRANSACTION READ ONLY", {})
        return (yield from step())

    try:
        return await desk.transaction(brief)
    except StoreUnavailable as error:
        if not isinstance(error.__cause__, errors.LockNotAvailable):
            raise
        raise Locked(await _why(desk, layout, reads=reads)) from error


async def _why(desk: Desk, layout: Layout, *, reads: bool) -> Finding:
    facts = {
        "tables": [quoted(layout.table), quoted(layout.events)],
        "modes": list(_KEEP_READERS_OUT if reads else _KEEP_WRITERS_OUT),
    }
    [rows] = await desk.alone(Query(_BLOCKING, facts))
    found = sessions.read(rows)
    told = f"table {layout.table} is locked and cannot be {'read' if reads else 'changed'}"
    for one in found:
        if one.tables and not one.waits:
            return Finding("failure", f"{told}: {one.name} has locked {one.tables[0]}{one.since}", one.end)
    for first in found:
        for before in found:
            if first.waits and not before.waits:  # it may only read, and yet everybody stands behind it
                who = f"{first.name} waits to lock {first.tables[0]}, behind {before.name}{before.since}"
                fix = f"{before.end}; or end the one that waits: SELECT pg_terminate_backend({first.pid})"
                return Finding("failure", f"{told}: {who}", fix)
    if not reads:
        told = f"table {layout.table}, or a row of it, is locked and cannot be changed"
    fix = "see who waits for whom: SELECT pid, pg_blocking_pids(pid), query FROM pg_stat_activity"
    return Finding("failure", told, fix)
