"""PostgreSQL behind a network that loses replies, holds them back or cuts connections, and a frozen server."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from support.postgres import Postgres
from support.proxy import Proxy
from support.sessions import gone, say, session
from support.waiting import until_async
from support.work import at_work

from unstuck import StoreUnavailable, Unstuck, open_store
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Status
from unstuck.protocol.outcome import Settled, completed, failed, released
from unstuck.protocol.store import Store
from unstuck.stores.postgres import connections
from unstuck.stores.postgres.store import PostgresStore
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import enqueued, leased, look, new, one_leased, states, trouble

pytestmark = pytest.mark.anyio

PATIENCE = 1.0  # instead of 20 s
CONNECT = 2.0  # the least that the driver knows
BUSY = 4.0  # seconds that the machine may add: who has no patience, or waits his turn, takes longer


@pytest.fixture
async def harness(postgres_server: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness


@pytest.fixture
async def proxy(postgres_server: Postgres, harness: PostgresHarness) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", postgres_server.port) as proxy:
        yield proxy
    await gone(harness, "far")


@pytest.fixture
def far(harness: PostgresHarness, postgres_server: Postgres, proxy: Proxy) -> str:
    """The harness's store, seen through the proxy."""
    url = proxy.through(harness.url)
    return f"{url}&connect_timeout=2&application_name=far"


@pytest.fixture
async def store(far: str) -> AsyncIterator[Store]:
    async with open_store(far) as store:
        yield store


@contextmanager
def hurry() -> Iterator[None]:
    """Patience is a twentieth of what it is. Not for what must succeed: a busy server may take longer."""
    one = connections.Connections.one

    def soon(self: connections.Connections, patience: float | None = connections.PATIENCE) -> Any:
        return one(self, patience and patience * PATIENCE / connections.PATIENCE)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections.Connections, "one", soon)
        yield


async def refused_within(seconds: float, call: asyncio.Task[object]) -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(call, 30)
    assert time.monotonic() - began < seconds


async def test_a_settle_whose_reply_was_lost_is_repeated_and_not_lost(
    harness: PostgresHarness, store: Store, proxy: Proxy
) -> None:
    job = await one_leased(store)
    proxy.drop_reply(to=b"-- complete:")

    with pytest.raises(StoreUnavailable):
        await store.settle([completed(job.lease, "done")])

    assert (await look(harness.store, job.ref)).status is Status.COMPLETED
    assert await store.settle([completed(job.lease, "done")]) == [Settled.REPEATED]
    assert await store.settle([failed(job.lease, trouble())]) == [Settled.LOST]
    assert proxy.counts.replies_dropped == 1


async def test_a_settle_with_followers_whose_commit_was_not_answered_adds_them_once(
    harness: PostgresHarness, store: Store, proxy: Proxy
) -> None:
    job = await one_leased(store)
    outcome = completed(job.lease, then=(new("next", key="follower"),))
    proxy.drop_reply(to=b"COMMIT")

    with pytest.raises(StoreUnavailable):
        await store.settle([outcome])

    assert await states(harness.store, "next") == {"pending": 1}
    assert await store.settle([outcome]) == [Settled.REPEATED]
    assert await states(harness.store, "next") == {"pending": 1}


async def test_an_enqueue_whose_reply_was_lost_may_be_repeated(
    harness: PostgresHarness, store: Store, proxy: Proxy
) -> None:
    jobs = [new(key=str(number), payload=number) for number in range(5)]
    proxy.drop_reply(to=b"-- enqueue:")

    with pytest.raises(StoreUnavailable):
        await store.enqueue(jobs)

    assert await states(harness.store) == {"pending": 5}
    assert [(answer.created, answer.same) for answer in await store.enqueue(jobs)] == [(False, True)] * 5
    assert await states(harness.store) == {"pending": 5}


async def test_leases_whose_reply_was_lost_come_back_as_strangers(
    harness: PostgresHarness, store: Store, proxy: Proxy
) -> None:
    await enqueued(store, 3)
    proxy.drop_reply(to=b"-- lease:")

    with pytest.raises(StoreUnavailable):
        await leased(store, 3)

    assert await states(harness.store) == {"processing": 3}
    strangers = (await store.heartbeat(WorkerInfo(id="w"), [])).strangers
    assert len(strangers) == 3
    assert await store.settle([released(lease) for lease in strangers]) == [Settled.APPLIED] * 3
    assert [job.attempts for job in await leased(store, 3)] == [1, 1, 1]


async def test_a_worker_gives_back_leases_whose_reply_was_lost_and_runs_them(far: str, proxy: Proxy) -> None:
    app, runs = Unstuck(far), []

    @app.task(heartbeat=0.2)
    async def work(number: int) -> None:
        runs.append(number)

    async with app:
        handles = await app.enqueue_many([work.call(number) for number in range(4)])
        proxy.drop_reply(to=b"-- lease:")
        async with at_work(app):
            for handle in handles:
                await handle.result(20)
        assert proxy.counts.replies_dropped == 1
        assert [(await handle.job()).attempts for handle in handles] == [1] * 4
    assert sorted(runs) == [0, 1, 2, 3]


async def test_a_connection_that_died_while_idle_is_replaced_unnoticed(store: Store, proxy: Proxy) -> None:
    await enqueued(store)
    [idle] = cast(PostgresStore, store)._connections._idle
    proxy.reset()
    await until_async(lambda: connections._has_input(idle), 5, "the news to arrive")

    assert len(await leased(store)) == 1


async def test_in_a_partition_every_call_ends_in_time_and_works_again_afterwards(
    store: Store, proxy: Proxy
) -> None:
    await enqueued(store, 10)
    proxy.stall()
    began = time.monotonic()
    calls = [store.enqueue([new()]), store.count(), store.clock(), leased(store), store.pause("other", "")]
    calls += [leased(store) for _ in range(15)]
    with hurry():
        answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
    took = time.monotonic() - began

    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert took < PATIENCE + CONNECT + BUSY
    assert proxy.counts.accepted <= 2 * connections.MOST, "connections pile up"
    proxy.heal()
    # In a queue of its own: the leases that nobody waits for any more may arrive now.
    await enqueued(store, 5, queue="after")
    assert len(await leased(store, 5, queue="after")) == 5


async def test_calls_that_share_a_commit_do_not_wait_one_after_the_other(store: Store, proxy: Proxy) -> None:
    await enqueued(store, 4)
    jobs = await leased(store, 3)
    proxy.stall()
    began = time.monotonic()

    with hurry():
        answers = await asyncio.gather(
            leased(store), *(store.settle([completed(job.lease)]) for job in jobs), return_exceptions=True
        )

    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert time.monotonic() - began < PATIENCE + BUSY


async def test_a_frozen_server_fails_calls_in_time_and_serves_them_when_it_is_back(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    async with open_store(f"{harness.url}&connect_timeout=2") as store:
        job = await one_leased(store)
        await asyncio.to_thread(postgres_server.pause)
        with hurry():
            settling: asyncio.Task[object] = asyncio.ensure_future(store.settle([completed(job.lease)]))
            await refused_within(PATIENCE + BUSY, settling)
            await refused_within(CONNECT + BUSY, asyncio.ensure_future(store.clock()))
        await asyncio.to_thread(postgres_server.resume)

        assert await store.settle([completed(job.lease)]) in ([Settled.APPLIED], [Settled.REPEATED])
        assert (await look(store, job.ref)).status is Status.COMPLETED


async def test_a_statement_that_waits_too_long_for_a_lock_is_given_up(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    job = await one_leased(harness.store)
    async with session(postgres_server.url()) as other:
        await say(other, "UPDATE {schema}.jobs SET stage = 'mine'", harness)
        with hurry():
            settling: asyncio.Task[object] = asyncio.ensure_future(
                harness.store.settle([completed(job.lease)])
            )
            await refused_within(PATIENCE + BUSY, settling)
        await other.rollback()

    async def over() -> bool:
        return await harness.store.settle([completed(job.lease)]) in ([Settled.APPLIED], [Settled.REPEATED])

    await until_async(over, 10, "the lease to be ended")


@pytest.mark.long
async def test_a_worker_on_a_slow_network_works_slowly_with_few_connections(far: str, proxy: Proxy) -> None:
    app = Unstuck(far)

    @app.task(lease=5.0, heartbeat=1.0)
    async def work(number: int) -> int:
        return number

    async with app:
        handles = await app.enqueue_many([work.call(number) for number in range(20)])
        proxy.delay(0.03)
        most = 0
        async with at_work(app, concurrency=5):
            for number, handle in enumerate(handles):
                assert await handle.result(30) == number
                most = max(most, proxy.open)
        assert most <= 2 * connections.MOST + 2  # the worker's, the pulse's, and a listener for each
        assert [(await handle.job()).attempts for handle in handles] == [1] * 20
        proxy.heal()
