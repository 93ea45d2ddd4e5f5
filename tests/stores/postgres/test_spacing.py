"""Debounced and throttled jobs on PostgreSQL: who waits for whose lock, and what is kept of the intervals of keys."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.postgres import Postgres
from support.sessions import say, session, waits

from unstuck.protocol.leases import Recovery
from unstuck.stores.postgres import round_trips
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import look, new
from unstuck.testing.conformance.spacing import INTERVAL, add, all_jobs, debounced, throttled

pytestmark = pytest.mark.anyio
LEASE = """
UPDATE {schema}.jobs SET status = 'processing', rank = NULL, locked_by = 'other', attempt_count = 1, fence = 7777,
    lease_expires_at = clock_timestamp() + interval '1 minute'
"""


@pytest.fixture
async def harness(postgres_server: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness


async def test_a_call_that_waited_for_a_lease_of_the_debounced_job_adds_a_new_one(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    first = await add(harness.store, debounced("old"))
    async with session(postgres_server.url()) as worker:
        await say(worker, LEASE, harness)
        calling = asyncio.create_task(add(harness.store, debounced("new")))
        await waits(harness, "FOR UPDATE")
        await worker.commit()
    second = await calling

    assert second.created
    assert (await look(harness.store, first.ref)).payload == "old"


async def test_nobody_leases_a_job_while_it_is_replaced(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    first = await add(harness.store, debounced("old"))
    await harness.store.edit([first.ref], run_at=(await look(harness.store, first.ref)).created_at)
    async with session(postgres_server.url()) as holder:
        await say(holder, "LOCK TABLE {schema}.jobs IN SHARE MODE", harness)  # it may be locked, not changed
        calling = asyncio.create_task(add(harness.store, debounced("new")))
        await waits(harness, "UPDATE")
        locked = await say(holder, "SELECT id FROM {schema}.jobs FOR UPDATE SKIP LOCKED", harness)
        await holder.commit()
    assert locked == []
    assert not (await calling).created


async def test_a_call_waits_for_another_with_its_key_and_for_no_other(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    await add(harness.store, throttled())
    await harness.age(INTERVAL + 1)
    async with session(postgres_server.url()) as other:
        await say(other, "SELECT FROM {schema}.spacing WHERE key = 'k' FOR UPDATE", harness)
        calling = asyncio.create_task(add(harness.store, throttled()))
        await waits(harness, "INSERT INTO")
        await asyncio.wait_for(add(harness.store, throttled(key="free")), 20)
        await other.commit()
    assert (await calling).created


async def test_calls_with_the_same_keys_in_another_order_do_not_deadlock(
    harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_trips, "TRIES", 1)  # whose transaction the server ends gets an error
    keys = [f"key-{number}" for number in range(30)]
    stores = [await harness.another() for _ in range(4)]

    async def call(number: int) -> None:
        ordered = keys if number % 2 else keys[::-1]
        for _ in range(5):
            await stores[number].enqueue([debounced(key=key) for key in ordered])

    await asyncio.gather(*map(call, range(4)))
    assert sorted(job.key or "" for job in await all_jobs(harness.store)) == sorted(keys)


async def test_jobs_with_keys_among_spaced_ones_in_another_order_do_not_deadlock(
    harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_trips, "TRIES", 1)
    stores = [await harness.another() for _ in range(4)]

    async def call(number: int) -> int:
        made = 0
        for turn in range(5):
            shared = [new(key=f"{turn}-{key}") for key in range(12)]
            apart = [throttled(key=f"{turn}-{key} of {number}") for key in range(12)]
            jobs = [job for pair in zip(shared, apart, strict=True) for job in pair]
            answers = await stores[number].enqueue(jobs if number % 2 else jobs[::-1])
            made += sum(answer.created for answer in answers)
        return made

    assert sum(await asyncio.gather(*map(call, range(4)))) == 5 * (12 + 4 * 12)


async def test_there_is_one_row_a_key_and_a_recovery_deletes_those_that_are_over(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    for _ in range(3):
        await harness.store.enqueue([throttled(key="old"), debounced(key="older"), debounced(key="locked")])
    await harness.age(INTERVAL + 1)
    await harness.store.enqueue([throttled(key="young")])
    assert len(await harness.rows("SELECT key FROM {schema}.spacing")) == 4

    async with session(postgres_server.url()) as caller:
        await say(caller, "SELECT FROM {schema}.spacing WHERE key = 'locked' FOR UPDATE", harness)
        await asyncio.wait_for(harness.store.reclaim(Recovery("reaper", 60.0, 10)), 20)
        await caller.rollback()

    assert sorted(await harness.rows("SELECT key FROM {schema}.spacing")) == [("locked",), ("young",)]
