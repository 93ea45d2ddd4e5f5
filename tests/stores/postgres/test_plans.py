"""How recovery and leases find their jobs in PostgreSQL: by index, however many others lie beside them."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
from psycopg import AsyncConnection
from support.postgres import Postgres

from unstuck.protocol.leases import PASSED_BY, Recovery, Share
from unstuck.stores.postgres.address import parse_address
from unstuck.stores.postgres.steps import lease, reclaim
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import enqueued, leased

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(postgres_server: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness


async def explained(harness: PostgresHarness, statement: str, params: Sequence[Any]) -> str:
    """The plan of a statement in a session with the settings of the store's own, which decide on plans."""
    conninfo = parse_address(urlsplit(harness.url), harness.url).conninfo
    async with await AsyncConnection.connect(conninfo, autocommit=True) as session:
        assert await (await session.execute("SHOW enable_seqscan")).fetchone() == ("off",)
        rows = await session.execute(f"EXPLAIN {statement}".encode(), params)
        return "\n".join([line async for (line,) in rows])


@pytest.mark.accepts("REC-062")
async def test_recovery_looks_only_at_leases_that_ended(harness: PostgresHarness) -> None:
    await enqueued(harness.store, 3000)
    await leased(harness.store, 10)
    await harness.rows("ANALYZE {schema}.jobs")
    asked = reclaim(Recovery("reaper", 30.0, 50), future=True)
    [(name, params)] = [(query.name, query.params) for query in asked if query.name == "reclaim"]

    plan = await explained(harness, harness.store._sql[name], params)  # type: ignore[attr-defined,arg-type]

    assert "Index Scan using jobs_held on jobs" in plan
    assert "Index Cond: (lease_expires_at < (InitPlan" in plan or "Index Cond: (lease_expires_at < $" in plan
    assert "Seq Scan on jobs" not in plan


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a plan that walked along the line."""
    if plan.get("Index Name") == "jobs_ready" and plan["Actual Loops"]:
        yield plan
    for part in plan.get("Plans", ()):
        yield from scans(part)


@pytest.mark.parametrize("only_new", [False, True])
async def test_a_lease_reads_the_head_of_the_line_and_of_what_it_passes_by_no_more_than_a_bounded_part(
    harness: PostgresHarness, only_new: bool
) -> None:
    await enqueued(harness.store, 3 * PASSED_BY)
    await leased(harness.store)
    await harness.rows("UPDATE {schema}.jobs SET settled = 'released', settled_fence = 1")
    await enqueued(harness.store, 10)
    await harness.rows("VACUUM ANALYZE {schema}.jobs")
    address = harness.store._address  # type: ignore[attr-defined]
    [*_, query] = lease({"q": Share(60.0, 10, only_new=only_new)}, 10, "w", address)
    explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {harness.store._sql[query.name]}"  # type: ignore[attr-defined]

    [(plan,)] = await harness.rows(explained, query.params)  # type: ignore[arg-type]

    found = list(scans((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))
    read = sum(one["Actual Rows"] + one.get("Rows Removed by Filter", 0) for one in found)
    assert 10 <= read <= (2 * (10 + PASSED_BY) + 1 if only_new else 10)
