"""Rows on PostgreSQL that somebody else has locked: who steps around them, and who waits."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from support.postgres import Postgres
from support.sessions import say, session, waits
from support.waiting import until_async

from unstuck import Reaper, StoreError
from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.operators import Finding
from unstuck.stores.postgres import checkup
from unstuck.stores.postgres.rows import Query
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import counts, enqueued, leased, look

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


@pytest.mark.accepts("REAP-091")
async def test_a_job_that_somebody_has_locked_is_left_to_him_and_does_not_hold_up_recovery(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    locked, other = await enqueued(harness.store, 2)
    jobs = {job.ref: job for job in await leased(harness.store, 2)}
    await harness.age(61)
    async with session(postgres_server.url()) as worker:
        await say(worker, LOCK, harness, [locked.id])
        done = await asyncio.wait_for(Reaper(harness.store).recover(), 10)
        await worker.rollback()

    assert [outcome.lease.ref for outcome in done] == [other]
    assert (await look(harness.store, locked)).lease == jobs[locked].lease


async def test_a_job_of_a_dead_owner_that_somebody_has_locked_does_not_hold_up_recovery(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    locked, other = await enqueued(harness.store, 2)
    await leased(harness.store, 2, owner="dead")
    async with session(postgres_server.url()) as holder:
        await say(holder, LOCK, harness, [locked.id])
        taken = await asyncio.wait_for(harness.store.reclaim(Recovery("reaper", 30.0, 9, of=["dead"])), 10)
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


async def test_a_job_that_somebody_has_locked_before_it_was_due_has_waited_since(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    [locked] = await enqueued(harness.store, delay=60.0)
    await harness.age(150)
    async with session(postgres_server.url()) as holder:
        await say(holder, LOCK, harness, [locked.id])
        assert await leased(harness.store) == []
        assert (await counts(harness.store)).waited == pytest.approx(90, abs=20)
        await enqueued(harness.store)
        assert (await counts(harness.store)).waited == pytest.approx(90, abs=20), "the longest waits, still"


async def locks_told(harness: PostgresHarness) -> list[Finding]:
    return [one for one in await harness.store.checkup() if "holds locks" in one.what]


async def test_the_doctor_names_a_session_that_sits_on_jobs(
    harness: PostgresHarness, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    [locked] = await enqueued(harness.store)
    async with session(postgres_server.url(), name="somebody's psql") as holder:
        await say(holder, LOCK, harness, [locked.id])
        monkeypatch.setattr(checkup, "LONG_WITH_LOCKS", 3600.0)
        assert await locks_told(harness) == []

        monkeypatch.setattr(checkup, "LONG_WITH_LOCKS", 0.001)
        [told] = await locks_told(harness)
        pid = holder.info.backend_pid
        assert told.level == "failure"
        assert f"session {pid} (" in told.what
        assert "somebody's psql) holds locks on jobs, idle in its transaction for " in told.what
        assert f"pg_terminate_backend({pid})" in told.fix
        await holder.rollback()

        await say(holder, "SELECT FROM {schema}.jobs", harness)
        assert await locks_told(harness) == [], "who only reads is in nobody's way"
        await say(holder, "LOCK TABLE {schema}.jobs IN SHARE UPDATE EXCLUSIVE MODE", harness)
        assert await locks_told(harness) == [], "nor is who vacuums, analyzes or builds an index concurrently"


@pytest.mark.parametrize("times", range(6))
async def test_after_an_error_amid_several_queries_none_is_thought_to_be_prepared(
    harness: PostgresHarness, times: int
) -> None:
    """The server skips what comes behind an error, also a request to prepare: a connection that believes otherwise
    would refuse that query for ever."""
    desk = cast(Any, harness.store)._opened()
    often, wrong = Query("SELECT 1", {}), Query("SELECT 1 / %(zero)s", {"zero": 0})
    for _ in range(times):
        await desk.alone(often)

    with pytest.raises(StoreError):
        await desk.alone(wrong, often, often)

    assert await desk.alone(often, often) == [[(1,)], [(1,)]]


@pytest.mark.parametrize("times", range(2, 4))
async def test_after_a_query_that_was_given_up_none_behind_it_is_thought_to_be_prepared(
    harness: PostgresHarness, times: int
) -> None:
    desk = cast(Any, harness.store)._opened()
    often, long = Query("SELECT 1", {}), Query("SELECT 1 FROM pg_sleep(600) AS long", {})
    for _ in range(times):
        await desk.alone(often)
    asking = asyncio.create_task(desk.alone(long, often, often))

    async def sleeps() -> list[tuple[Any, ...]]:
        return await harness.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'")

    await until_async(sleeps, 10, "the server to be at it")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert await desk.alone(often, often) == [[(1,)], [(1,)]]


async def test_after_a_deadlock_amid_several_queries_none_is_thought_to_be_prepared(
    harness: PostgresHarness,
) -> None:
    desk = cast(Any, harness.store)._opened()
    often = Query("SELECT 1", {})
    await harness.rows("CREATE SEQUENCE {schema}.tries")  # is not put back with a transaction
    deadlock = (
        "DO $$BEGIN IF nextval('{schema}.tries') = 1 THEN RAISE 'so' USING ERRCODE = '40P01'; END IF; END$$"
    )
    once = Query(deadlock.format(schema=harness.schema), {})
    for _ in range(2):
        await desk.alone(often)

    assert await desk.alone(once, often, often) == [[], [(1,)], [(1,)]]
