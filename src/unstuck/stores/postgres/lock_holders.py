"""Other sessions that hold locks on tables: which ones, since when, and how to end them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from unstuck.stores.postgres.rows import Query, Row
from unstuck.stores.shared.statements import statements
from unstuck.text.phrases import lasting

# The columns of an ``activity``, in the order of Session's fields.
WHO = """\
activity.pid, activity.usename::text, activity.application_name,
    coalesce(activity.state, '') LIKE 'idle in transaction%%',
    extract(epoch FROM clock_timestamp() - activity.xact_start)::double precision"""
_TEXT = statements("unstuck.stores.postgres", "sql")["sessions"].replace("{who}", WHO)


class Session(NamedTuple):
    pid: int
    user: str
    application: str
    idle: bool  # it does nothing in its transaction, and keeps its locks
    seconds: float | None  # for which the transaction has been open, if we may see it
    tables: list[str]
    waits: bool = False  # for its lock

    @property
    def name(self) -> str:
        who = ", ".join(filter(None, (self.user, self.application)))
        return f"session {self.pid} ({who})" if who else f"session {self.pid}"

    @property
    def since(self) -> str:
        if self.seconds is None:
            return ""
        return f", {'idle in its' if self.idle else 'in a'} transaction for {lasting(self.seconds)}"

    @property
    def end(self) -> str:
        return f"let it commit, or end it: SELECT pg_terminate_backend({self.pid})"


def holding_in(schema: str, seconds: float) -> Query:
    """The query for sessions that have held rows or tables of a schema (quoted) for so long."""
    return Query(_TEXT, {"schema": schema, "seconds": seconds})


def read(found: Sequence[Row]) -> list[Session]:
    return [Session(*row) for row in found]
