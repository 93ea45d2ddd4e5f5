"""Interleavings on PostgreSQL that a store gets wrong when it is written in the natural way, built for real."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.postgres import Postgres
from support.processes import Child
from support.sessions import say, session, waits
from support.waiting import until_async

from unstuck import open_store
from unstuck.protocol.job import Job, Status
from unstuck.protocol.leases import Reclaimed, Recovery, Share
from unstuck.protocol.outcome import Settled, completed
from unstuck.protocol.store import Store
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import counts, enqueued, leased, look, one_leased

pytestmark = pytest.mark.anyio

BEAT = """
UPDATE {schema}.jobs SET lease_expires_at = clock_timestamp() + interval '60 s', last_heartbeat_at = clock_timestamp()
WHERE id = %s AND fence = %s AND status = 'processing'
"""
BACK = "UPDATE {schema}.jobs SET status = 'pending', rank = now(), locked_by = NULL, lease_expires_at = NULL"
OVERDUE = "SELECT id FROM {schema}.jobs WHERE status = 'processing' AND lease_expires_at < now()"
NAIVE = {
    "a subquery": f"{BACK} WHERE id IN ({OVERDUE})",
    "an unlocked CTE": f"WITH overdue AS MATERIALIZED ({OVERDUE}) {BACK} FROM overdue WHERE jobs.id = overdue.id",
}
LATE_EVENT = "INSERT INTO {schema}.job_events (type, queue, data) VALUES ('late', 'q', '{}')"
# Time stands still in this statement until nobody holds the lock: it has its snapshot, and no row yet.
SLOW_NOW = """
CREATE SCHEMA {schema}_trap;
CREATE FUNCTION {schema}_trap.now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN clock_timestamp(); END $$
"""


@pytest.fixture
async def harness(postgres_server: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness


async def overdue(harness: PostgresHarness) -> Job:
    job = await one_leased(harness.store, seconds=10.0)
    await harness.age(11)
    return job


async def reclaimed(store: Store) -> Reclaimed:
    return await store.reclaim(Recovery("reaper", 30.0, 10))


@pytest.mark.parametrize("how", NAIVE)
async def test_a_natural_looking_reaper_takes_a_job_whose_beat_it_has_waited_for(
    harness: PostgresHarness, postgres_server: Postgres, how: str
) -> None:
    """Not ours: it shows that the interleaving of the next test is the right one."""
    job = await overdue(harness)
    url = postgres_server.url()
    async with session(url) as holder, session(url, name="naive") as reaper:
        await say(holder, BEAT, harness, job.id, job.fence)
        reaping = asyncio.create_task(say(reaper, NAIVE[how], harness))
        await waits(harness, "UPDATE", name="naive")
        await holder.commit()
        await reaping
        await reaper.commit()

    assert (await look(harness.store, job.ref)).status is Status.PENDING, (
        "the trap has gone: is it one still?"
    )


async def test_a_lease_whose_beat_is_under_way_is_not_taken(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    job = await overdue(harness)
    async with session(postgres_server.url()) as holder:
        await say(holder, BEAT, harness, job.id, job.fence)
        during = await asyncio.wait_for(reclaimed(harness.store), 15)  # it would wait for the beat for ever
        await holder.commit()

    assert during.jobs == (await reclaimed(harness.store)).jobs == []
    assert (await look(harness.store, job.ref)).lease == job.lease
    assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]


async def test_a_lease_renewed_between_snapshot_and_lock_of_a_reaper_is_not_taken(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    renewed, silent = await overdue(harness), await one_leased(harness.store, seconds=10.0)
    await harness.age(11)
    await harness.rows(SLOW_NOW)
    path = f"&options=-c%20search_path%3D{harness.schema}_trap,pg_catalog"
    try:
        async with open_store(harness.url + path) as slow, session(postgres_server.url()) as holder:
            await say(holder, "SELECT pg_advisory_lock(4711)", harness)
            reclaiming = asyncio.create_task(reclaimed(slow))
            await waits(harness, "-- reclaim:")
            await say(holder, BEAT, harness, renewed.id, renewed.fence)
            await holder.commit()
            await say(holder, "SELECT pg_advisory_unlock(4711)", harness)
            taken = await reclaiming
    finally:
        await harness.rows("DROP SCHEMA {schema}_trap CASCADE")

    assert [job.id for job in taken.jobs] == [silent.id]
    assert (await look(harness.store, renewed.ref)).lease == renewed.lease


@pytest.mark.parametrize(
    "shares",
    [
        {"q": Share(60.0, 5)},
        {"q": Share(60.0, 5, at_a_time=5)},
        {"q": Share(60.0, 5, per_lane=2)},
        {"q": Share(60.0, 5), "another": Share(60.0, 5, per_lane=2)},
    ],
    ids=["plain", "at a time", "lanes", "beside lanes"],
)
async def test_a_pause_that_commits_while_a_lease_is_under_way_is_obeyed_by_it(
    harness: PostgresHarness, postgres_server: Postgres, shares: dict[str, Share]
) -> None:
    await enqueued(harness.store, 3, lane="a")
    await leased(harness.store)  # the queue is known
    async with session(postgres_server.url()) as operator:
        await say(operator, "UPDATE {schema}.queues SET paused_at = now(), paused_why = 'stop'", harness)
        leasing = asyncio.create_task(harness.store.lease(shares, 5, "w"))
        await waits(harness, f'"{harness.schema}".queues')
        await operator.commit()

        assert await leasing == []


async def test_a_pause_returns_only_when_the_leases_that_did_not_see_it_have_ended(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    await leased(harness.store)
    async with session(postgres_server.url()) as leaser:
        await say(leaser, "SELECT 1 FROM {schema}.queues WHERE paused_at IS NULL FOR SHARE", harness)
        pausing = asyncio.create_task(harness.store.pause("q", "stop"))
        await waits(harness, "-- pause:")
        assert not pausing.done()
        await leaser.commit()
        await pausing


_LEASER = """
import asyncio, json, pathlib, sys
from unstuck import open_store
from unstuck.protocol.leases import Share

async def main(url, owner, all_here, paused):
    async with open_store(url) as store:
        print("here", flush=True)
        while not pathlib.Path(all_here).exists():
            await asyncio.sleep(0.01)
        before, after = [], []
        while len(after) < 3:
            calls = after if pathlib.Path(paused).exists() else before
            calls.append(len(await store.lease({"q": Share(60.0, 1)}, 1, owner)))
            if len(before) == 3:
                print("leasing", flush=True)
        print(json.dumps([sum(before), sum(after)]))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_after_a_pause_none_of_eight_processes_leases_any_more(
    harness: PostgresHarness, tmp_path: Path
) -> None:
    await enqueued(harness.store, 20_000)
    logs = [tmp_path / f"leaser-{number}.log" for number in range(8)]
    all_here, flag = tmp_path / "all here", tmp_path / "paused"
    argv = [sys.executable, "-c", _LEASER, harness.url]
    leasers = [Child([*argv, log.stem, str(all_here), str(flag)], log) for log in logs]
    try:
        for leaser in leasers:
            await leaser.until_line_async("here", 60)
        all_here.touch()  # or the first would take all jobs while the last one starts
        for leaser in leasers:
            await leaser.until_line_async("leasing", 60)
        await harness.store.pause("q", "stop")
        held = (await counts(harness.store)).processing
        flag.touch()
        codes = [await asyncio.to_thread(leaser.wait, 60) for leaser in leasers]
    finally:
        for leaser in leasers:
            leaser.close()

    assert codes == [0] * 8
    leased = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
    assert sum(after for _, after in leased) == 0
    of = await counts(harness.store)
    assert of.processing == held == sum(before for before, _ in leased)
    assert of.pending > 0, "they ran out of jobs before they were stopped"


@pytest.mark.parametrize("earlier", [0, 2])
async def test_an_event_that_commits_late_is_not_missed_by_who_follows(
    harness: PostgresHarness, postgres_server: Postgres, earlier: int
) -> None:
    for number in range(earlier):
        await harness.store.pause(f"earlier-{number}", "")
    seen = await harness.store.events()
    cursor = seen[-1].cursor if seen else None
    async with session(postgres_server.url()) as slow:
        await say(slow, LATE_EVENT, harness)
        await harness.store.pause("quick", "")
        assert await harness.store.events(after=cursor) == []
        assert await harness.store.events() == seen
        await slow.commit()

    assert [event.type for event in await harness.store.events(after=cursor)] == ["late", "paused"]


async def test_a_number_that_never_comes_holds_up_no_follower_for_long(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    await harness.store.pause("first", "")
    async with session(postgres_server.url()) as failing:
        await say(failing, LATE_EVENT, harness)
        await failing.rollback()
    await harness.store.pause("second", "")

    async def told() -> bool:
        return [event.queue for event in await harness.store.events()] == ["first", "second"]

    await until_async(told, 20, "the event behind the gap")
