"""How recovery finds its jobs in PostgreSQL: by index, however many others lie beside them."""

from collections.abc import AsyncIterator

import pytest
from support.postgres import Postgres

from unstuck.stores.postgres.steps import reclaim
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import enqueued, leased

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(postgres_server: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness


@pytest.mark.accepts("REC-062")
async def test_recovery_looks_only_at_leases_that_ended(harness: PostgresHarness) -> None:
    await enqueued(harness.store, 3000)
    await leased(harness.store, 10)
    await harness.rows("ANALYZE {schema}.jobs")
    asked = reclaim(None, 30.0, 50, "reaper", None, [], 3600.0, future=True)
    [(name, params)] = [(query.name, query.params) for query in asked if query.name == "reclaim"]

    rows = await harness.rows(f"EXPLAIN {harness.store._sql[name]}", params)  # type: ignore[attr-defined,arg-type]

    plan = "\n".join(line for (line,) in rows)
    assert "Index Scan using jobs_held on jobs" in plan
    assert "Index Cond: (lease_expires_at < now())" in plan
    assert "Seq Scan on jobs" not in plan
