"""Connections of callers, and how to run a query on each kind of them.

Their kinds are recognised by the names of their classes, so no driver but ours has to be installed or imported. Settings
of the application on its connection (rows, placeholders, codecs) must make no difference.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, Protocol, TypeVar

from psycopg import AsyncCursor, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from unstuck.protocol.errors import ConfigError
from unstuck.stores.postgres.rows import Params, Row

T = TypeVar("T")
Rows = list[Row]
_PARAMETER = re.compile(r"%\((\w+)\)s(?P<cast>::)?|%%")


class AsyncCaller(Protocol):
    async def ask(self, text: str, params: Params) -> Rows: ...

    def whole(self) -> AbstractAsyncContextManager[Any]:
        """Runs several queries in one transaction if none is open; otherwise it does nothing."""
        ...


class SyncCaller(Protocol):
    def ask(self, text: str, params: Params) -> Rows: ...

    def whole(self) -> AbstractContextManager[Any]: ...


class _AsyncPsycopg:
    def __init__(self, given: Any) -> None:
        self._connection = getattr(given, "connection", given)  # a cursor has its connection

    async def ask(self, text: str, params: Params) -> Rows:
        # A cursor of our own kind: the connection's may use other placeholders or return other rows.
        cursor = AsyncCursor(self._connection, row_factory=tuple_row)
        await cursor.execute(text.encode(), params)
        return await cursor.fetchall()

    def whole(self) -> AbstractAsyncContextManager[Any]:
        return self._connection.transaction() if _bare(self._connection) else nullcontext()


class _Psycopg:
    def __init__(self, given: Any) -> None:
        self._connection = getattr(given, "connection", given)

    def ask(self, text: str, params: Params) -> Rows:
        cursor = Cursor(self._connection, row_factory=tuple_row)
        cursor.execute(text.encode(), params)
        return cursor.fetchall()

    def whole(self) -> AbstractContextManager[Any]:
        return self._connection.transaction() if _bare(self._connection) else nullcontext()


def _bare(connection: Any) -> bool:
    return bool(connection.autocommit) and connection.info.transaction_status == TransactionStatus.IDLE


class _Psycopg2:
    def __init__(self, given: Any) -> None:
        self._connection = getattr(given, "connection", given)

    def ask(self, text: str, params: Params) -> Rows:
        cursor_class = sys.modules[
            "psycopg2.extensions"
        ].cursor  # it returns tuples, whatever the connection is set to
        with self._connection.cursor(cursor_factory=cursor_class) as cursor:
            cursor.execute(text, params)
            return list(cursor.fetchall())

    def whole(self) -> AbstractContextManager[Any]:
        return nullcontext()


class _Asyncpg:
    def __init__(self, given: Any) -> None:
        self._connection = given

    async def ask(self, text: str, params: Params) -> Rows:
        numbered, names = _numbered(text)
        return [
            tuple(row) for row in await self._connection.fetch(numbered, *[params[name] for name in names])
        ]

    def whole(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext() if self._connection.is_in_transaction() else self._connection.transaction()


class _AsyncAlchemy:
    def __init__(self, given: Any) -> None:
        self._given = given

    async def ask(self, text: str, params: Params) -> Rows:
        session = not hasattr(self._given, "exec_driver_sql")
        connection = await self._given.connection() if session else self._given
        found = await connection.exec_driver_sql(*_in_style(connection.dialect, text, params))
        return [tuple(row) for row in found]

    def whole(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext()  # it begins a transaction by itself


class _Alchemy:
    def __init__(self, given: Any) -> None:
        self._given = given

    def ask(self, text: str, params: Params) -> Rows:
        session = not hasattr(self._given, "exec_driver_sql")
        connection = self._given.connection() if session else self._given
        found = connection.exec_driver_sql(*_in_style(connection.dialect, text, params))
        return [tuple(row) for row in found]

    def whole(self) -> AbstractContextManager[Any]:
        return nullcontext()


class _Django:
    def __init__(self, given: Any) -> None:
        self._connection = given
        if given.vendor != "postgresql":
            raise _foreign("Django", given.vendor)

    def ask(self, text: str, params: Params) -> Rows:
        with self._connection.cursor() as cursor:
            cursor.execute(text, params)
            return list(cursor.fetchall())

    def whole(self) -> AbstractContextManager[Any]:
        atomic: Any = import_module("django.db.transaction").atomic
        found: AbstractContextManager[Any] = atomic(using=self._connection.alias, savepoint=False)
        return found


_ASYNC: dict[str, Callable[[Any], AsyncCaller]] = {
    "psycopg.AsyncConnection": _AsyncPsycopg,
    "psycopg.AsyncCursor": _AsyncPsycopg,
    "asyncpg.Connection": _Asyncpg,
    "asyncpg.PoolConnectionProxy": _Asyncpg,
    "sqlalchemy.AsyncSession": _AsyncAlchemy,
    "sqlalchemy.AsyncConnection": _AsyncAlchemy,
    "sqlalchemy.async_scoped_session": _AsyncAlchemy,
}
_SYNC: dict[str, Callable[[Any], SyncCaller]] = {
    "psycopg.Connection": _Psycopg,
    "psycopg.Cursor": _Psycopg,
    "psycopg2.connection": _Psycopg2,
    "psycopg2.cursor": _Psycopg2,
    "sqlalchemy.Session": _Alchemy,
    "sqlalchemy.Connection": _Alchemy,
    "sqlalchemy.scoped_session": _Alchemy,
    "django.ConnectionProxy": _Django,
    "django.BaseDatabaseWrapper": _Django,
}
_KINDS = (
    "enqueue_in takes an AsyncConnection or AsyncCursor of psycopg, a Connection of asyncpg, an AsyncSession or "
    "AsyncConnection of SQLAlchemy; enqueue_in_sync a Connection or Cursor of psycopg or psycopg2, a Session or "
    "Connection of SQLAlchemy, a connection of Django"
)


def async_caller(connection: Any) -> AsyncCaller:
    return _kind(connection, _ASYNC, _SYNC, "is not asynchronous: use app.enqueue_in_sync(connection, …)")(
        connection
    )


def sync_caller(connection: Any) -> SyncCaller:
    return _kind(connection, _SYNC, _ASYNC, "is asynchronous: use await app.enqueue_in(connection, …)")(
        connection
    )


def _kind(connection: Any, right: Mapping[str, T], others: Mapping[str, Any], advice: str) -> T:
    """The entry for the object's class, or for its nearest base class, by package and name."""
    above = type(connection).__mro__
    names = [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in above]
    for name in names:
        if name in right:
            return right[name]
    shown = f"an object of type {above[0].__module__}.{above[0].__qualname__}"
    if not others.keys().isdisjoint(names):
        raise ConfigError(f"{shown} {advice}")
    raise ConfigError(f"{shown} is not a connection that can be used: {_KINDS}")


def _in_style(dialect: Any, text: str, params: Params) -> tuple[str, Any, dict[str, Any]]:
    """A statement and its values for the driver below SQLAlchemy; a streamed statement could not write."""
    at_once = {"stream_results": False}
    if dialect.name != "postgresql":
        raise _foreign("SQLAlchemy", dialect.name)
    if dialect.paramstyle == "pyformat":
        return text, params, at_once
    if dialect.paramstyle == "numeric_dollar":
        numbered, names = _numbered(text)
        return numbered, tuple(params[name] for name in names), at_once
    raise ConfigError(
        f"SQLAlchemy's driver {dialect.driver!r} cannot be used: use postgresql+psycopg, +asyncpg or +psycopg2"
    )


def _foreign(of: str, database: str) -> ConfigError:
    return ConfigError(f"this connection of {of} leads to {database}: jobs can only join one to PostgreSQL")


@functools.cache
def _numbered(text: str) -> tuple[str, tuple[str, ...]]:
    """The statement with $1, $2 …, and the names of the parameters in that order.

    Values with a cast are sent as text: the application may have set its driver to encode JSON itself.
    """
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%"
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}{'::text::' if found['cast'] else ''}"

    return _PARAMETER.sub(number, text), tuple(names)
