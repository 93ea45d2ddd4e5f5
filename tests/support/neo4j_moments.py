"""Moments on Neo4j: somebody holds a lock while the store waits for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.neo4j import QUEUE
from support.waiting import until_async
from unstuck.testing import Neo4jHarness

CANCEL = """
MATCH (j:Harness {job_id: $id})
SET j += {status: 'failed', processed_at: timestamp(), rank: null, due_at: null, lock_owner: null, lock_until: null,
  heartbeat_at: null, error: 'x', fence: j.fence + 7777}
"""
WAITING = "SHOW TRANSACTIONS YIELD status, currentQuery WHERE status STARTS WITH 'Blocked' RETURN count(*)"


@asynccontextmanager
async def holding(harness: Neo4jHarness, text: str, **params: Any) -> AsyncIterator[None]:
    """Somebody has done this and not committed it yet; on leaving he commits, once somebody else waits for him."""
    session = harness.driver.session(database=QUEUE)
    async with session, await session.begin_transaction() as tx:
        await (await tx.run(text, params)).consume()
        yield
        await until_async(lambda: waits(harness), 30, "somebody to wait for the lock")
        await tx.commit()


async def waits(harness: Neo4jHarness) -> bool:
    [(number,)] = await harness.rows(WAITING)
    return bool(number)
