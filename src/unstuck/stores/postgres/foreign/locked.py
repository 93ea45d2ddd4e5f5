"""briefly(): does not wait long for a table that another session has locked, and reports which session that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from psycopg import errors

from unstuck.protocol.errors import SchemaError, StoreUnavailable
from unstuck.protocol.operators import Finding
from unstuck.stores.postgres import lock_holders
from unstuck.stores.postgres.foreign.layout import Layout
from unstuck.stores.postgres.foreign.table import NoTable, quoted
from unstuck.stores.postgres.round_trips import RoundTrips
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Step
from unstuck.stores.shared.statements import statements

T = TypeVar("T")
PATIENCE = "1s"  # how long a table may be locked before it is reported: a normal migration takes less
_BLOCKING = statements("unstuck.stores.postgres.foreign", "sql")["blocking"].replace(
    "{who}", lock_holders.WHO
)
_KEEP_READERS_OUT = ("AccessExclusiveLock",)
_KEEP_WRITERS_OUT = (*_KEEP_READERS_OUT, "ExclusiveLock", "ShareRowExclusiveLock", "ShareLock")


class Locked(StoreUnavailable):
    """A table is locked; ``finding`` has the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.what}; {finding.fix}")
        self.finding = finding


UNSEEN = (Locked, SchemaError)  # errors of one table, which the others need not have


def finding(error: Locked | SchemaError) -> Finding:
    """The finding of a checkup about a table that cannot be read."""
    if isinstance(error, Locked):
        return error.finding
    fix = "name one that is there, with its schema if that is not public: --table media.jobs"
    return Finding("failure", str(error), fix if isinstance(error, NoTable) else "")


async def briefly(
    trips: RoundTrips, layout: Layout, step: Callable[[], Step[T]], *, reads: bool = False
) -> T:
    """Carry out a step on a table in one transaction that does not wait long for locks; with ``reads``, a read-only one.

    A caller with several tables must not lose time with one that is locked: the leases in the others go on running out.
    """

    def brief() -> Step[T]:
        yield Query(f"SET LOCAL lock_timeout = '{PATIENCE}'", {})
        if reads:
            yield Query("SET TRANSACTION READ ONLY", {})
        return (yield from step())

    try:
        return await trips.transaction(brief)
    except StoreUnavailable as error:
        if not isinstance(error.__cause__, errors.LockNotAvailable):
            raise
        raise Locked(await _why(trips, layout, reads=reads)) from error


async def _why(trips: RoundTrips, layout: Layout, *, reads: bool) -> Finding:
    facts = {
        "tables": [quoted(layout.table), quoted(layout.events)],
        "modes": list(_KEEP_READERS_OUT if reads else _KEEP_WRITERS_OUT),
    }
    [rows] = await trips.alone(Query(_BLOCKING, facts))
    found = lock_holders.read(rows)
    what = f"table {layout.table} is locked and cannot be {'read' if reads else 'changed'}"
    for one in found:
        if one.tables and not one.waits:
            return Finding("failure", f"{what}: {one.name} has locked {one.tables[0]}{one.since}", one.end)
    for first in found:
        for before in found:
            if (
                first.waits and not before.waits
            ):  # the other one may only read, and yet all that come later wait, too
                who = f"{first.name} waits to lock {first.tables[0]}, behind {before.name}{before.since}"
                fix = f"{before.end}; or end the one that waits: SELECT pg_terminate_backend({first.pid})"
                return Finding("failure", f"{what}: {who}", fix)
    if not reads:
        what = f"table {layout.table}, or a row of it, is locked and cannot be changed"
    fix = "see who waits for whom: SELECT pid, pg_blocking_pids(pid), query FROM pg_stat_activity"
    return Finding("failure", what, fix)
