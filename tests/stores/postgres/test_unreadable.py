"""A record on PostgreSQL that somebody edited so that it cannot be read any more."""

from collections.abc import AsyncIterator

import pytest
from support.postgres import Postgres
from support.unreadable import unreadable_is_told

from unstuck.operations.verify import broken_rules
from unstuck.protocol.job import Status
from unstuck.protocol.leases import Recovery
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import enqueued, leased, look

pytestmark = pytest.mark.anyio

# Whoever leases a job loses it at once: what he was told of its fence holds no longer.
TAKEN_OVER = """
CREATE FUNCTION {schema}.take_over() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN UPDATE {schema}.jobs SET fence = fence + 1 WHERE id = NEW.id; RETURN NULL; END $$;
CREATE TRIGGER take_over AFTER UPDATE OF status ON {schema}.jobs
FOR EACH ROW WHEN (OLD.status = 'pending' AND NEW.status = 'processing') EXECUTE FUNCTION {schema}.take_over()
"""


@pytest.fixture
async def harness(postgres_server: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness


async def test_a_record_that_cannot_be_read_is_put_aside_and_the_others_go_on(
    harness: PostgresHarness,
) -> None:
    [bad, good] = await enqueued(harness.store, 2)
    await harness.rows("UPDATE {schema}.jobs SET payload = '1e999' WHERE id = %s", (bad.id,))

    assert [job.ref for job in await leased(harness.store, 2)] == [good]

    aside = await look(harness.store, bad)
    assert (aside.status, aside.payload) == (Status.FAILED, "1e999")
    assert aside.error is not None
    assert aside.error.code == "unreadable"
    assert [event.type for event in await harness.store.events(job=bad)] == ["quarantined"]


async def test_it_is_left_out_of_listings_and_named_where_it_is_asked_for(
    harness: PostgresHarness, caplog: pytest.LogCaptureFixture
) -> None:
    first, bad, last = await enqueued(harness.store, 3)
    await harness.rows("UPDATE {schema}.jobs SET payload = '1e999' WHERE id = %s", (bad.id,))

    await unreadable_is_told(harness.store, [last, first], bad, caplog)


async def test_one_whose_lease_ran_out_is_put_aside_by_the_reaper(harness: PostgresHarness) -> None:
    [bad, good] = await enqueued(harness.store, 2)
    await leased(harness.store, 2)
    await harness.rows("UPDATE {schema}.jobs SET payload = '1e999' WHERE id = %s", (bad.id,))
    await harness.age(61)

    taken = await harness.store.reclaim(Recovery("reaper", 30.0, 10))

    assert [job.ref for job in taken.jobs] == [good]
    assert (await look(harness.store, bad)).status is Status.FAILED
    assert await broken_rules(harness.store) == []


async def test_one_that_was_taken_over_meanwhile_is_left_to_who_holds_it(harness: PostgresHarness) -> None:
    [bad] = await enqueued(harness.store)
    await harness.rows("UPDATE {schema}.jobs SET payload = '1e999'")
    await harness.rows(TAKEN_OVER)

    assert await leased(harness.store) == []

    assert await harness.rows("SELECT status FROM {schema}.jobs") == [("processing",)]
    assert await harness.store.events(job=bad) == []
