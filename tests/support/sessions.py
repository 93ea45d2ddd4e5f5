"""Sessions on a PostgreSQL server beside the store under test: to stand in its way, and to see it wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection

from support.waiting import until_async
from unstuck.testing import PostgresHarness

Session = AsyncConnection[tuple[Any, ...]]
STORE = "unstuck"  # what connections of a store call themselves
_WAITING = """
SELECT pid FROM pg_stat_activity
WHERE application_name = %s AND wait_event_type = 'Lock' AND query LIKE %s AND datname = current_database()
"""


@asynccontextmanager
async def session(url: str, *, name: str = "a test") -> AsyncIterator[Session]:
    """A connection that begins a transaction with its first statement, and commits when it is told to."""
    async with await AsyncConnection.connect(url, application_name=name, prepare_threshold=None) as opened:
        yield opened


async def say(opened: Session, sql: str, harness: PostgresHarness, *params: Any) -> list[tuple[Any, ...]]:
    """Run a statement in which ``{schema}`` is the harness's."""
    cursor = await opened.execute(sql.replace("{schema}", harness.schema).encode(), params)
    return await cursor.fetchall() if cursor.description else []


async def waits(harness: PostgresHarness, query: str, *, name: str = STORE) -> None:
    """Until a session of this name waits for a lock in a statement that contains these words."""

    async def found() -> list[tuple[Any, ...]]:
        return await harness.rows(_WAITING, (name, f"%{query}%"))

    await until_async(found, 30, f"{name} to wait for a lock in {query!r}")


async def gone(harness: PostgresHarness, name: str) -> None:
    """Until no session of this name is left: what it was asked to do is done, or will never be."""

    async def ended() -> bool:
        return not await harness.rows("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", (name,))

    await until_async(ended, 30, f"the sessions of {name} to end")
