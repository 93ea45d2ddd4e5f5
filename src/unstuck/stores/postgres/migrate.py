"""Brings the schema up to date, one numbered file after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from psycopg import errors

from unstuck.protocol.errors import SchemaError
from unstuck.stores.postgres.address import Address
from unstuck.stores.postgres.connections import Connection
from unstuck.stores.postgres.driver_errors import message_of
from unstuck.stores.shared.statements import needed_by, statements

MIGRATIONS = ("unstuck.stores.postgres", "sql/migrations")
# A file that begins with this is run one statement at a time, outside of a transaction, while others work.
APART = "-- concurrently"
LOCK_TIMEOUT = "3s"  # a statement that waits longer for a table's lock blocks all that wait behind it
AGAIN = 0.1  # seconds between two looks whether another process has finished its migration
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


async def version(connection: Connection, address: Address) -> tuple[int, int]:
    """The schema's version, and the version that a release must at least know to use it; 0 if there is none."""
    try:
        cursor = await connection.execute(_text(_VERSION, address))
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0, 0
    [(found, needs)] = await cursor.fetchall()
    return found or 0, needs or 0


async def migrate(
    connection: Connection, connect: Callable[[], Awaitable[Connection]], address: Address
) -> None:
    """Apply what is missing. Many processes may start at once: one works, the others wait for it and look again."""
    files = statements(*MIGRATIONS)
    if await _done(connection, address, len(files)):
        return
    async with await connect() as keeper, _alone(keeper, address):
        if await _done(connection, address, len(files)):
            return
        try:
            await _bring_up_to_date(connection, address, files)
        except errors.InsufficientPrivilege as error:
            raise SchemaError(
                f"schema {address.schema!r} lacks what this release needs, and the database user may not create it "
                f"({message_of(error)}): run unstuck init as a user that may"
            ) from error


async def _bring_up_to_date(connection: Connection, address: Address, files: Mapping[str, str]) -> None:
    await connection.execute(_text("CREATE SCHEMA IF NOT EXISTS {schema}", address))
    await connection.execute(_text(_BOOK, address))
    begun, _ = await version(connection, address)
    for number, (name, text) in enumerate(files.items(), 1):
        if number > begun:
            await _apply(connection, address, number, name, text)


@asynccontextmanager
async def _alone(keeper: Connection, address: Address) -> AsyncIterator[None]:
    """No other process migrates meanwhile. The lock belongs to a transaction, because a pooler gives sessions to others.

    The lock is tried again and again: a statement that waits for it would hold a snapshot, and an index that is created
    concurrently waits for all older snapshots to end.
    """
    while True:
        async with keeper.transaction():
            lock = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
            [(ours,)] = await (await keeper.execute(lock, [f"{address.channel} migrate"])).fetchall()
            # This also releases the snapshot of the statement before, which would otherwise last until the next one.
            await keeper.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            if ours:
                yield
                return
        await asyncio.sleep(AGAIN)


async def refuse_newer(connection: Connection, address: Address) -> None:
    """Raise if this release cannot work on the schema."""
    await _done(connection, address, len(statements(*MIGRATIONS)))


async def _done(connection: Connection, address: Address, newest: int) -> bool:
    found, needs = await version(connection, address)
    if needs > newest:
        raise SchemaError(
            f"schema {address.schema!r} is version {found} and needs a release that knows version {needs}; "
            f"this one knows up to {newest}: upgrade unstuck"
        )
    return found >= newest


async def _apply(connection: Connection, address: Address, number: int, name: str, text: str) -> None:
    note = _text("INSERT INTO {schema}.migrations (version, name, needs) VALUES (%s, %s, %s)", address)
    facts = [number, name, needed_by(text)]
    if text.startswith(APART):
        for statement in filter(None, map(_bare, text.split(";"))):
            await connection.execute(_text(statement, address))
        await connection.execute(note, facts)
        return
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'".encode())
        await connection.execute(_text(text, address))
        await connection.execute(note, facts)


def _bare(statement: str) -> str:
    return "\n".join(line for line in statement.splitlines() if not line.startswith("--")).strip()


def _text(sql: str, address: Address) -> bytes:
    return sql.replace("{schema}", address.quoted).encode()
