"""Connections as applications have them, each with a table ``orders`` at hand and settings that must not matter."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
import psycopg2.extras
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy

from unstuck import Call, Handle, SyncHandle, Unstuck

SETTINGS = ("SET search_path = nowhere", "SET DateStyle = 'German, DMY'", "SET TimeZone = 'Asia/Kolkata'")


@dataclass
class Caller:
    """An application in the midst of a transaction; ``given`` is what it passes on."""

    given: Any
    run: Callable[[str], Awaitable[None]]
    commit: Callable[[], Awaitable[None]]
    rollback: Callable[[], Awaitable[None]]
    is_async: bool

    async def enqueue_in(self, app: Unstuck, *calls: Call[Any]) -> list[Handle[Any]]:
        if self.is_async:
            return await app.enqueue_in(self.given, calls)
        return [_handle(handle) for handle in app.enqueue_in_sync(self.given, calls)]


def _handle(handle: SyncHandle[Any]) -> Handle[Any]:
    return handle._handle


Kind = Callable[[str], AbstractAsyncContextManager[Caller]]
KINDS: dict[str, Kind] = {}


def _kind(opened: Callable[[str], AsyncIterator[Caller]]) -> None:
    manager = asynccontextmanager(opened)

    @asynccontextmanager
    async def prepared(url: str) -> AsyncIterator[Caller]:
        async with manager(url) as caller:
            for setting in SETTINGS:
                await caller.run(setting)
            yield caller

    KINDS[opened.__name__] = prepared


def _sync_kind(opened: Callable[[str], Iterator[Caller]]) -> None:
    manager = contextmanager(opened)

    async def kind(url: str) -> AsyncIterator[Caller]:
        with manager(url) as caller:
            yield caller

    kind.__name__ = opened.__name__
    _kind(kind)


def _calling(given: Any, execute: Callable[[str], Any], commit: Any, rollback: Any) -> Caller:
    """A caller whose functions are not asynchronous."""

    async def run(sql: str) -> None:
        execute(sql)

    async def end_well() -> None:
        commit()

    async def end_badly() -> None:
        rollback()

    return Caller(given, run, end_well, end_badly, is_async=False)


def _alchemy(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


async def _psycopg(connection: psycopg.AsyncConnection[Any], given: Any) -> Caller:
    async def run(sql: str) -> None:
        await connection.execute(sql.encode())

    return Caller(given, run, connection.commit, connection.rollback, is_async=True)


@_kind
async def psycopg_async(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield await _psycopg(connection, connection)


@_kind
async def psycopg_async_cursor_with_dict_rows(url: str) -> AsyncIterator[Caller]:
    options: Any = {"row_factory": dict_row, "cursor_factory": psycopg.AsyncRawCursor}
    async with (
        await psycopg.AsyncConnection.connect(url, **options) as connection,
        connection.cursor() as cursor,
    ):
        yield await _psycopg(connection, cursor)


@asynccontextmanager
async def _asyncpg(connection: Any) -> AsyncIterator[Caller]:
    # As many applications have it: JSON becomes objects on the way.
    await connection.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    transactions = [connection.transaction()]
    await transactions[0].start()

    async def run(sql: str) -> None:
        await connection.execute(sql)

    async def end(how: str) -> None:
        await getattr(transactions.pop(), how)()
        transactions.append(connection.transaction())
        await transactions[0].start()

    yield Caller(connection, run, lambda: end("commit"), lambda: end("rollback"), is_async=True)
    await transactions[0].rollback()


@_kind
async def asyncpg_connection(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    async with _asyncpg(connection) as caller:
        yield caller
    await connection.close()


@_kind
async def asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        _asyncpg(connection) as caller,
    ):
        yield caller


async def _async_alchemy(url: str, driver: str, *, session: bool) -> AsyncIterator[Caller]:
    engine = alchemy.create_async_engine(_alchemy(url, driver))
    given: Any = alchemy.AsyncSession(engine) if session else await engine.connect()

    async def run(sql: str) -> None:
        await given.execute(sqlalchemy.text(sql))

    try:
        yield Caller(given, run, given.commit, given.rollback, is_async=True)
    finally:
        await given.close()
        await engine.dispose()


@_kind
def alchemy_async_session_on_psycopg(url: str) -> AsyncIterator[Caller]:
    return _async_alchemy(url, "psycopg", session=True)


@_kind
def alchemy_async_session_on_asyncpg(url: str) -> AsyncIterator[Caller]:
    return _async_alchemy(url, "asyncpg", session=True)


@_kind
def alchemy_async_connection_on_psycopg(url: str) -> AsyncIterator[Caller]:
    return _async_alchemy(url, "psycopg", session=False)


@_kind
def alchemy_async_connection_on_asyncpg(url: str) -> AsyncIterator[Caller]:
    return _async_alchemy(url, "asyncpg", session=False)


@_sync_kind
def psycopg_sync(url: str) -> Iterator[Caller]:
    with psycopg.connect(url) as connection:
        yield _calling(
            connection, lambda sql: connection.execute(sql.encode()), connection.commit, connection.rollback
        )


@_sync_kind
def psycopg_cursor_with_dict_rows(url: str) -> Iterator[Caller]:
    options: Any = {"row_factory": dict_row, "cursor_factory": psycopg.ClientCursor}
    with psycopg.connect(url, **options) as connection, connection.cursor() as cursor:
        yield _calling(
            cursor, lambda sql: cursor.execute(sql.encode()), connection.commit, connection.rollback
        )


@_sync_kind
def psycopg2_connection(url: str) -> Iterator[Caller]:
    connection = psycopg2.connect(url, cursor_factory=psycopg2.extras.RealDictCursor)
    cursor = connection.cursor()
    yield _calling(connection, cursor.execute, connection.commit, connection.rollback)
    connection.close()


@_sync_kind
def psycopg2_cursor(url: str) -> Iterator[Caller]:
    connection = psycopg2.connect(url)
    cursor = connection.cursor()
    yield _calling(cursor, cursor.execute, connection.commit, connection.rollback)
    connection.close()


def _sync_alchemy(url: str, driver: str, kind: str) -> Iterator[Caller]:
    engine = sqlalchemy.create_engine(_alchemy(url, driver))
    given: Any

    def execute(sql: str) -> None:
        given.execute(sqlalchemy.text(sql), execution_options={"stream_results": False})

    if kind == "connection":
        given = engine.connect().execution_options(stream_results=True)
    else:
        given = orm.scoped_session(orm.sessionmaker(engine)) if kind == "scoped" else orm.Session(engine)
    try:
        yield _calling(given, execute, given.commit, given.rollback)
    finally:
        given.close()
        engine.dispose()


@_sync_kind
def alchemy_session_on_psycopg(url: str) -> Iterator[Caller]:
    return _sync_alchemy(url, "psycopg", "session")


@_sync_kind
def alchemy_connection_on_psycopg(url: str) -> Iterator[Caller]:
    return _sync_alchemy(url, "psycopg", "connection")


@_sync_kind
def alchemy_scoped_session_on_psycopg2(url: str) -> Iterator[Caller]:
    return _sync_alchemy(url, "psycopg2", "scoped")
