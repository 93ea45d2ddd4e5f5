"""Delayed jobs that became due get their place in line a bounded number at a time: no lease pays for all of them."""

import pytest

from unstuck.stores.shared.events import PROMOTE_AT_ONCE
from unstuck.testing import Harness, PostgresHarness, SQLiteHarness
from unstuck.testing.conformance.given import counts, enqueued, leased

pytestmark = pytest.mark.anyio


async def one_lease_of_many_that_became_due(harness: Harness) -> None:
    await enqueued(harness.store, PROMOTE_AT_ONCE + 500, delay=60.0)
    await harness.age(61)
    assert len(await leased(harness.store, 1)) == 1


async def test_one_lease_promotes_a_bounded_number_on_sqlite(harness: SQLiteHarness) -> None:
    await one_lease_of_many_that_became_due(harness)

    in_line = harness.rows("SELECT count(*) FROM job WHERE rank IS NOT NULL")
    assert in_line == [(PROMOTE_AT_ONCE - 1,)]


async def test_one_lease_promotes_a_bounded_number_on_postgresql(on_postgres: PostgresHarness) -> None:
    await one_lease_of_many_that_became_due(on_postgres)

    in_line = await on_postgres.rows("SELECT count(*) FROM {schema}.jobs WHERE rank IS NOT NULL")
    assert in_line == [(PROMOTE_AT_ONCE - 1,)]


async def test_one_that_became_due_has_waited_since_then_also_if_nobody_gave_it_its_place(
    harness: SQLiteHarness,
) -> None:
    await enqueued(harness.store, delay=60.0)
    await harness.age(150)
    assert (await counts(harness.store)).waited == pytest.approx(90, abs=20)
