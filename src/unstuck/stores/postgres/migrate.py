"""Brings the schema up to date, one numbered file after the other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from psycopg import errors

from unstuck.errors import SchemaError
from unstuck.stores.postgres.lines import Connection
from unstuck.stores.postgres.place import Place
from unstuck.stores.postgres.plainly import said
from unstuck.stores.statements import statements

PACKAGE = "unstuck.stores.postgres.migrations"
# A file that begins with this is run one statement at a time, outside of a transaction, while others work.
APART = "-- concurrently"
LOCK_TIMEOUT = "3s"  # who waits longer for a table's lock holds up everybody behind it
AGAIN = 0.1  # seconds until who found somebody else at work looks again
_VERSION = """
SELECT max(version), max(needs) FROM {schema}.migrations
"""
_BOOK = """
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    needs integer NOT NULL, -- the oldest schema version that a release may know and still work on this one
    at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


async def version(connection: Connection, place: Place) -> tuple[int, int]:
    """The schema's version, and which one a release must at least know to use it; 0 if there is none."""
    try:
        cursor = await connection.execute(_text(_VERSION, place))
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0, 0
    [(found, needs)] = await cursor.fetchall()
    return found or 0, needs or 0


async def migrate(connection: Connection, connect: Callable[[], Awaitable[Connection]], place: Place) -> None:
    """Apply what is missing. Many processes may start at once: one works, the others wait for it and look again."""
    files = statements(PACKAGE, ".sql")
    if await _done(connection, place, len(files)):
        return
    async with await connect() as keeper, _alone(keeper, place):
        if await _done(connection, place, len(files)):
            return
        try:
            await _bring_up_to_date(connection, place, files)
        except errors.InsufficientPrivilege as error:
            raise SchemaError(
                f"schema {place.schema!r} has not what this release needs, and the database user may not create it "
                f"({said(error)}): run unstuck init as one who may"
            ) from error


async def _bring_up_to_date(connection: Connection, place: Place, files: Mapping[str, str]) -> None:
    await connection.execute(_text("CREATE SCHEMA IF NOT EXISTS {schema}", place))
    await connection.execute(_text(_BOOK, place))
    begun, _ = await version(connection, place)
    for number, (name, text) in enumerate(files.items(), 1):
        if number > begun:
            await _apply(connection, place, number, name, text)


@asynccontextmanager
async def _alone(keeper: Connection, place: Place) -> AsyncIterator[None]:
    """Nobody else migrates meanwhile. A transaction keeps it so, because behind a pooler a session is nobody's own.

    It is tried again and again, because who waits inside a statement has a snapshot, and an index that is made
    concurrently waits for the ends of all of these.
    """
    while True:
        async with keeper.transaction():
            lock = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
            [(ours,)] = await (await keeper.execute(lock, [f"{place.channel} migrate"])).fetchall()
            # Also lets go of the snapshot of the statement before, which would last as long as nothing follows it.
            await keeper.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            if ours:
                yield
                return
        await asyncio.sleep(AGAIN)


async def refuse_newer(connection: Connection, place: Place) -> None:
    """Raise if this release cannot work on the schema: it would do what a newer one does not expect."""
    await _done(connection, place, len(statements(PACKAGE, ".sql")))


async def _done(connection: Connection, place: Place, newest: int) -> bool:
    found, needs = await version(connection, place)
    if needs > newest:
        raise SchemaError(
            f"schema {place.schema!r} is version {found} and needs a release that knows version {needs}; "
            f"this one knows up to {newest}: upgrade unstuck"
        )
    return found >= newest


async def _apply(connection: Connection, place: Place, number: int, name: str, text: str) -> None:
    note = _text("INSERT INTO {schema}.migrations (version, name, needs) VALUES (%s, %s, %s)", place)
    facts = [number, name, _needs(text)]
    if text.startswith(APART):
        for statement in filter(None, map(_bare, text.split(";"))):
            await connection.execute(_text(statement, place))
        await connection.execute(note, facts)
        return
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'".encode())
        await connection.execute(_text(text, place))
        await connection.execute(note, facts)


def _needs(text: str) -> int:
    """A file that older releases cannot live with says so: ``-- needs 3``."""
    found = re.search(r"^-- needs (\d+)$", text, re.MULTILINE)
    return int(found.group(1)) if found else 0


def _bare(statement: str) -> str:
    return "\n".join(line for line in statement.splitlines() if not line.startswith("--")).strip()


def _text(sql: str, place: Place) -> bytes:
    return sql.replace("{schema}", place.quoted).encode()
