"""Rows on PostgreSQL that somebody else has locked: who steps around them, and who waits."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.postgres import Postgres
from support.sessions import say, session, waits

from unstuck.store import Share
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import enqueued, leased

pytestmark = pytest.mark.anyio

LOCK = "SELECT FROM {schema}.jobs WHERE id = ANY (%s) FOR UPDATE"


@pytest.fixture
async def harness(postgres_server: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness


@pytest.mark.parametrize("share", [Share(60.0, 9), Share(60.0, 9, per_lane=9)], ids=["plain", "lanes"])
async def test_jobs_that_somebody_has_locked_do_not_hold_up_a_lease(
    harness: PostgresHarness, postgres_server: Postgres, share: Share
) -> None:
    """Neither those that stand in line nor those that have just become due."""
    delayed = await enqueued(harness.store, 2, delay=60.0, lane="a")
    waiting = await enqueued(harness.store, 2, lane="a")
    await harness.age(61)
    async with session(postgres_server.url()) as holder:
        await say(holder, LOCK, harness, [delayed[0].id, waiting[0].id])
        during = await asyncio.wait_for(harness.store.lease({"q": share}, 9, "w"), 10)
        await holder.rollback()

    assert {job.ref for job in during} == {delayed[1], waiting[1]}
    after = await harness.store.lease({"q": share}, 9, "w")
    assert {job.ref for job in after} == {delayed[0], waiting[0]}


async def test_a_job_of_a_dead_owner_that_somebody_has_locked_does_not_hold_up_recovery(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    locked, other = await enqueued(harness.store, 2)
    await leased(harness.store, 2, owner="dead")
    async with session(postgres_server.url()) as holder:
        await say(holder, LOCK, harness, [locked.id])
        taken = await asyncio.wait_for(harness.store.reclaim(None, 30.0, 9, "reaper", of="dead"), 10)
        await holder.rollback()

    assert [job.ref for job in taken.jobs] == [other]


async def test_one_at_a_time_takes_from_a_bucket(harness: PostgresHarness, postgres_server: Postgres) -> None:
    """Or both would count what is out before either of them has taken."""
    stores = [harness.store, await harness.another()]
    async with session(postgres_server.url()) as holder:
        await say(holder, "LOCK TABLE {schema}.tokens IN SHARE MODE", harness)
        takers = [asyncio.create_task(store.take("b", 3, 4, 60.0)) for store in stores]
        await waits(harness, "-- lock_bucket:")
        await holder.commit()

        assert sorted([(await taker).granted for taker in takers]) == [1, 3]
