"""Those who lease and settle on Neo4j, each its own way: Unstuck, one bare statement, plain queries, and an empty write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from neo4j import AsyncDriver, AsyncGraphDatabase, AsyncManagedTransaction

from unstuck.protocol.ids import new_id
from unstuck.protocol.job import Job, NewJob
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import Outcome, completed
from unstuck.protocol.store import Store
from unstuck.stores import open_store

LABELS = ("EmbedJob", "Bare", "Plain")
SHARE = 300.0
# As much as a correct lease and settle must say, on nodes with the seed's properties and a fence; nothing else.
BARE = """
CALL () {
  UNWIND $rows AS row
  MATCH (j:Bare {id: row[0]}) SET j.id = j.id
  WITH j, row WHERE j.status = 'processing' AND j.fence = row[1]
  SET j.status = 'completed', j.processed_at = timestamp(), j.lock_owner = null, j.lock_until = null
  RETURN count(j) AS done
}
CALL () {
  MATCH (q:BareQueue {name: 'q'}) SET q.name = q.name
  WITH q CALL (q) {
    MATCH (c:Bare) USING INDEX SEEK c:Bare(status, rank)
    WHERE c.status = 'pending' AND c.rank IS NOT NULL AND c.run_at <= timestamp()
    WITH c ORDER BY c.status, c.rank LIMIT $limit RETURN c
  }
  WITH c ORDER BY c.id SET c.id = c.id
  WITH collect(c) AS locked UNWIND locked AS j
  WITH j, datetime.realtime().epochMillis AS now WHERE j.status = 'pending'
  SET j.status = 'processing', j.lock_owner = 'w', j.attempts = j.attempts + 1, j.lock_until = now + 300000,
    j.heartbeat_at = now, j.fence = CASE WHEN j.fence + 1 > now THEN j.fence + 1 ELSE now END
  RETURN collect([j.id, j.fence, j.payload, j.attempts]) AS jobs
}
RETURN done, jobs
"""
# The embedding queue as it was first written: wrong with two workers, and one transaction for each job that ends.
PLAIN_LEASE = """
MATCH (j:Plain) WHERE j.status = 'pending' AND (j.lock_until IS NULL OR j.lock_until < timestamp())
WITH j ORDER BY j.priority DESC, j.created_at LIMIT $limit
SET j.status = 'processing', j.lock_owner = 'w', j.lock_until = timestamp() + 300000, j.attempts = j.attempts + 1
RETURN j.id, j.payload, j.attempts
"""
PLAIN_COMPLETE = """
MATCH (j:Plain {id: $id}) WHERE j.lock_owner = 'w' AND j.status = 'processing'
SET j.status = 'completed', j.processed_at = timestamp(), j.lock_owner = null, j.lock_until = null RETURN count(j)
"""
FILL = """
UNWIND range(1, $count) AS n CALL (n) {
  CREATE (:LABEL {
    id: randomUUID(), entity_uid: randomUUID(), model: 'm', version: '1', status: 'pending', priority: 1,
    created_at: timestamp(), run_at: timestamp(), rank: timestamp() + n, attempts: 0, max_attempts: 3, fence: 0, payload: $payload
  })
} IN TRANSACTIONS OF 5000 ROWS
"""
FINISHED = """
UNWIND range(1, $count) AS n CALL (n) {
  CREATE (:EmbedJob {
    id: 'bench/f' + n, job_id: 'f' + n, queue: 'bench', task: 'note', payload: $payload, status: 'completed', priority: 0,
    created_at: timestamp(), run_at: timestamp(), started_at: timestamp(), processed_at: timestamp(), seq: n, attempts: 1,
    max_attempts: 3, fence: 1, settled_fence: 1, settled: 'completed'
  })
} IN TRANSACTIONS OF 5000 ROWS
"""
SCHEMA = (
    "CREATE CONSTRAINT IF NOT EXISTS FOR (j:LABEL) REQUIRE j.id IS UNIQUE",
    "CREATE CONSTRAINT IF NOT EXISTS FOR (j:LABEL) REQUIRE (j.entity_uid, j.model, j.version) IS UNIQUE",
    "CREATE INDEX IF NOT EXISTS FOR (j:LABEL) ON (j.status)",
    "CREATE INDEX IF NOT EXISTS FOR (j:LABEL) ON (j.lock_until)",
    "CREATE INDEX IF NOT EXISTS FOR (j:LABEL) ON (j.status, j.rank)",
    "MERGE (:LABELQueue {name: 'q'})",
)
PAYLOAD = '"' + "x" * 100 + '"'
Loop = Callable[["Bench", int, int], Awaitable[None]]
Take = Callable[["Bench"], Awaitable[float]]


class Bench:
    """``async with Bench(url)``: Unstuck's store, and the driver itself for the others."""

    def __init__(self, url: str) -> None:
        self._url = url
        uri, _, self.database = url.rpartition("/")
        self.driver: AsyncDriver = AsyncGraphDatabase.driver(uri, notifications_min_severity="OFF")
        self.store: Store = open_store(url)

    async def __aenter__(self) -> Self:
        await self.store.__aenter__()
        await self.store.migrate()
        for label in LABELS[1:]:
            for text in SCHEMA:
                await self.run(text.replace("LABEL", label))
        await self.run("CALL db.awaitIndexes(300)")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.__aexit__(None, None, None)
        await self.driver.close()

    async def run(self, text: str, **params: Any) -> list[dict[str, Any]]:
        async with self.driver.session(database=self.database) as session:
            return await (await session.run(text, params)).data()

    async def fill(self, label: str, count: int) -> None:
        """So many waiting jobs with this label, and no others."""
        kinds = "|".join((*LABELS, "EmbedJobCounter"))
        await self.run(f"MATCH (n:{kinds}) CALL (n) {{ DELETE n }} IN TRANSACTIONS OF 10000 ROWS")
        if label != LABELS[0]:
            await self.run(FILL.replace("LABEL", label), count=count, payload=PAYLOAD)
            return
        for start in range(0, count, 5000):
            some = range(start, min(start + 5000, count))
            await self.store.enqueue(
                [NewJob(queue="bench", task="note", id=new_id(), payload="x" * 100) for _ in some]
            )

    async def rate(self, loop: Loop, jobs: int, batch: int) -> float:
        began = time.perf_counter()
        await loop(self, jobs, batch)
        return jobs / (time.perf_counter() - began)

    async def lease_ms(self, batch: int, times: int) -> float:
        """How long a lease takes, the median; what it took is given back."""
        took = []
        for _ in range(times):
            began = time.perf_counter()
            found = await self.store.lease({"bench": Share(SHARE, batch)}, batch, "w")
            took.append(time.perf_counter() - began)
            await self.store.settle([completed(job.lease) for job in found])
        return sorted(took)[len(took) // 2] * 1000


async def ours(bench: Bench, jobs: int, batch: int) -> None:
    """As a worker does it: what ended is settled while what comes next is leased."""
    done: list[Outcome] = []
    found: list[Job]
    for _ in range(0, jobs, batch):
        _, found = await asyncio.gather(
            bench.store.settle(done), bench.store.lease({"bench": Share(SHARE, batch)}, batch, "w")
        )
        assert len(found) == batch, "too few jobs were filled in"
        done = [completed(job.lease) for job in found]
    await bench.store.settle(done)


async def bare(bench: Bench, jobs: int, batch: int) -> None:
    rows: list[list[Any]] = []
    for _ in range(0, jobs + batch, batch):
        [found] = await bench.run(BARE, rows=rows, limit=batch)
        rows = sorted([job[0], job[1]] for job in found["jobs"])
    await bench.run(BARE, rows=rows, limit=0)


async def plain(bench: Bench, jobs: int, batch: int) -> None:
    async def lease(tx: AsyncManagedTransaction) -> list[dict[str, Any]]:
        return await (await tx.run(PLAIN_LEASE, limit=batch)).data()

    async def complete(tx: AsyncManagedTransaction, id_: str) -> None:
        await (await tx.run(PLAIN_COMPLETE, id=id_)).consume()

    for _ in range(0, jobs, batch):
        async with bench.driver.session(database=bench.database) as session:
            for row in await session.execute_write(lease):
                await session.execute_write(complete, row["j.id"])


async def empty(bench: Bench, jobs: int, batch: int) -> None:
    """A transaction a batch that writes one property."""
    for number in range(0, jobs, batch):
        await bench.run("MATCH (q:BareQueue {name: 'q'}) SET q.number = $number", number=number)
