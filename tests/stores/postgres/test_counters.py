"""Counters on PostgreSQL are written in pieces and put together now and then."""

from collections.abc import AsyncIterator

import pytest
from support.postgres import Postgres
from support.sessions import say, session

from unstuck.protocol.leases import Recovery
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import counts

pytestmark = pytest.mark.anyio

PIECES = "INSERT INTO {schema}.counters (queue, name, value) SELECT 'q', 'completed', 2 FROM generate_series(1, 3000)"


@pytest.fixture
async def harness(postgres_server: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness


async def test_pieces_that_were_put_together_are_as_much_as_before(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    await harness.rows(PIECES)
    assert (await counts(harness.store)).totals == {"completed": 6000}

    async with session(postgres_server.url()) as other:  # one that puts together at the same time
        await say(other, "SELECT FROM {schema}.counters ORDER BY seq LIMIT 10 FOR UPDATE", harness)
        await harness.store.reclaim(Recovery("reaper", 30.0, 10))

        assert await harness.rows("SELECT count(*) FROM {schema}.counters") == [(11,)]
    assert (await counts(harness.store)).totals == {"completed": 6000}
