"""PostgreSQL behind a real PgBouncer in transaction mode: the core of the suite, and workers."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from support.pgbouncer import PgBouncer
from support.postgres import Postgres
from support.workers import Workers

from unstuck import Status, open_store
from unstuck.protocol.store import Store
from unstuck.testing import Harness, PostgresHarness
from unstuck.testing.conformance.crowds import *
from unstuck.testing.conformance.enqueue import *
from unstuck.testing.conformance.heartbeat import *
from unstuck.testing.conformance.lease import *
from unstuck.testing.conformance.reclaim import *
from unstuck.testing.conformance.settle import *

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def pooler(pg15: Postgres) -> Iterator[PgBouncer]:
    with PgBouncer(pg15) as pooler:
        yield pooler


@pytest.fixture
async def harness(pooler: PgBouncer) -> AsyncIterator[Harness]:
    async with PostgresHarness(pooler.url(), "&pooler=transaction") as harness:
        yield harness


async def test_workers_drain_a_queue_through_a_pooler(workers: Workers) -> None:
    await workers.enqueue("step", 200, seconds=0.01)
    started = [workers.start("--processes", "2", "--recovery", "1") for _ in range(2)]

    jobs = await workers.finished(60, started[0])

    assert [(job.status, job.attempts) for job in jobs] == [(Status.COMPLETED, 1)] * 200
    for one in started:
        assert not one.says("does not answer|died|failed, will")


async def test_many_may_migrate_through_a_pooler_at_once(pooler: PgBouncer, pg15: Postgres) -> None:
    """What one of them has locked must be free again, on whatever connection it was locked."""
    name = pg15.create_database().rpartition("/")[2]
    url = f"{pooler.url(name)}?pooler=transaction"
    for _ in range(2):
        stores = [open_store(url) for _ in range(8)]
        async with asyncio.timeout(30):
            await asyncio.gather(*map(migrate, stores))
    held = pg15.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", name)
    assert held == [(0,)]


async def migrate(store: Store) -> None:
    async with store:
        await store.migrate()
