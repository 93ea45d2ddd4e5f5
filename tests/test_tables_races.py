"""Tables of a product under fire: live claims and beats, old workers, many reapers, a server that restarts."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.postgres import Postgres
from support.product import OldWorker, Product, product, tables, types
from support.product import running as running_product
from support.waiting import until_async

from unstuck import Reaper, open_store
from unstuck.errors import StoreUnavailable
from unstuck.model import Beat, Settled, Worker, completed, failed, released, retried
from unstuck.store import Blind, Share, Store
from unstuck.stores import open_tables
from unstuck.stores.postgres.adopted import locked
from unstuck.testing.conformance.given import trouble

pytestmark = pytest.mark.anyio

OVER = {"completed", "retried", "released", "failed", "reaper:requeued", "reaper:failed(timeout)"}


def replayed(events: list[dict[str, Any]]) -> tuple[str, int]:
    """A row's state and attempts by what was told of it alone; refuses what cannot have happened."""
    state, attempts, fence, spent = "queued", 0, None, set()
    for event in events:
        details, type_ = event["details"], event["type"]
        if type_ == "leased":
            assert state == "queued", f"leased while {state}"
            assert details["fence"] not in spent
            state, attempts, fence = "processing", attempts + 1, details["fence"]
            assert details["attempt"] == attempts
        elif type_ in OVER:
            assert (state, details["fence"]) == ("processing", fence), f"{type_} while {state}"
            spent.add(fence)
            attempts -= type_ == "released"
            state = {"completed": "done", "failed": "failed", "reaper:failed(timeout)": "failed"}.get(
                type_, "queued"
            )
    return state, attempts


async def told(shop: Product) -> dict[str, list[dict[str, Any]]]:
    """All events by row, in the order in which they happened."""
    found: dict[str, list[dict[str, Any]]] = {}
    for id_, data in await shop.say(
        "SELECT job_id::text, data FROM job_events ORDER BY (data #>> '{details,at}'), ts"
    ):
        found.setdefault(id_, []).append(data)
    return found


async def fickle(store: Store, owner: str, done: asyncio.Event, settled: Counter[str], seed: int) -> None:
    """A worker that beats for some rows, ends some in all ways, and forgets the others."""
    chance = random.Random(seed)
    while not done.is_set():
        jobs = await store.lease({"jobs": Share(30.0, 5)}, 5, owner)
        pulse = await store.heartbeat(
            Worker(id=owner, queues=("jobs",)), [Beat(job.lease, 30.0) for job in jobs]
        )
        assert set(pulse.verdicts) <= {job.lease for job in jobs}  # who is locked has no verdict yet
        outcomes = []
        for job in jobs:
            end = chance.random()
            if end < 0.5:
                outcomes.append(completed(job.lease))
            elif end < 0.6:
                outcomes.append(retried(job.lease, trouble(), 0.0))
            elif end < 0.7:
                outcomes.append(released(job.lease))
            elif end < 0.75:
                outcomes.append(failed(job.lease, trouble()))
        await asyncio.sleep(chance.random() * 0.02)
        for outcome, answer in zip(outcomes, await store.settle(outcomes), strict=True):
            settled[f"{outcome.word}:{answer}"] += 1


async def expire(shop: Product, done: asyncio.Event) -> None:
    """Let leases run out at random: the clock of the rows is turned on, and waits are over."""
    while not done.is_set():
        await shop.say(
            "UPDATE jobs SET lease_expires_at = now() - interval '1 s', last_heartbeat_at = now() - interval '99 s'"
            " WHERE id IN (SELECT id FROM jobs WHERE status = 'processing' AND random() < 0.3 FOR UPDATE SKIP LOCKED)"
        )
        await shop.say(
            "UPDATE jobs SET next_earliest_run_at = now() WHERE id IN (SELECT id FROM jobs WHERE status = 'queued'"
            " AND next_earliest_run_at > now() FOR UPDATE SKIP LOCKED)"
        )
        await asyncio.sleep(0.05)


@pytest.mark.timeout(300)
@pytest.mark.accepts("REAP-091")
async def test_claims_beats_and_twenty_reapers_at_once_leave_a_history_that_adds_up(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        locked, "PATIENCE", "60s"
    )  # two dozen stand in line for the same rows, and none gives up
    async with product(postgres_server) as shop, AsyncExitStack() as stack:
        await shop.say("INSERT INTO jobs (max_attempts) SELECT 6 FROM generate_series(1, 300)")
        stores = [await stack.enter_async_context(open_store(shop.url + "?table=jobs")) for _ in range(4)]
        await stores[0].migrate()
        reapers = [Reaper(await stack.enter_async_context(tables(shop.url, "jobs"))) for _ in range(20)]
        done, settled, reaped = asyncio.Event(), Counter[str](), []

        async def reaping(reaper: Reaper) -> None:
            while not done.is_set():
                reaped.extend(await reaper.recover())
                await asyncio.sleep(random.random() * 0.1)

        async def over() -> bool:
            [(left,)] = await shop.say("SELECT count(*) FROM jobs WHERE status IN ('queued', 'processing')")
            return bool(left == 0)

        async with asyncio.TaskGroup() as group:
            for number, store in enumerate(stores):
                group.create_task(fickle(store, f"w{number}", done, settled, number))
            for reaper in reapers:
                group.create_task(reaping(reaper))
            group.create_task(expire(shop, done))
            try:
                await until_async(over, 240, "all rows to end")
            finally:
                done.set()

        assert all(reaper.troubles == () for reaper in reapers)
        history = await told(shop)
        rows = await shop.say(
            "SELECT id::text, status::text, attempt_count, locked_by, lease_expires_at FROM jobs"
        )
        assert len(rows) == len(history) == 300
        for id_, status, attempts, holder, lease in rows:
            assert replayed(history[id_]) == (status, attempts), types(history[id_])
            assert (holder, lease) == (None, None)
        # Each was acted on once, whoever did it: what was answered "applied" is what was told, and nothing else.
        words = Counter(type_ for events in history.values() for type_ in types(events))
        assert words["reaper:requeued"] + words["reaper:failed(timeout)"] == len(reaped)
        assert len(reaped) > 50
        for word in ("completed", "retried", "released", "failed"):
            assert words[word] == settled[f"{word}:{Settled.APPLIED}"]


async def test_old_workers_go_on_beside_a_reaper(postgres_server: Postgres) -> None:
    async with product(postgres_server) as shop:
        await shop.say("INSERT INTO jobs (source_key) SELECT 'x' FROM generate_series(1, 40)")
        async with tables(shop.url) as opened:
            reaper = Reaper(opened)

            def work() -> int:
                with OldWorker(shop.url) as worker:
                    return sum(worker.finish(id_) for id_ in iter(worker.take, None))

            counts = asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))
            while not counts.done():
                assert await reaper.recover() == []
                await asyncio.sleep(0.01)
        assert sum(await counts) == 40
        assert await shop.say("SELECT status::text, count(*) FROM jobs GROUP BY 1") == [("done", 40)]
        assert await told(shop) == {}


async def test_after_a_restart_of_the_server_a_worker_gets_its_lease_once_more(
    postgres_server: Postgres,
) -> None:
    async with product(postgres_server, stays=True) as shop:
        ids = [await shop.stuck(lease_expires_at=-60, last_heartbeat_at=-360) for _ in range(3)]
        url = shop.url
    await asyncio.to_thread(postgres_server.kill9)
    await asyncio.to_thread(postgres_server.start)

    async with open_tables(url + "?table=jobs") as opened, tables(url, "jobs") as later:
        assert (await opened.clock()).uptime < 60
        reaper = Reaper(opened)
        assert await reaper.recover() == []  # for 300 seconds nobody could beat
        assert reaper._next_end is None

        for uptime, ended in ((299.0, 0), (301.0, 3)):
            found = await later.stuck(_nothing, [Blind(1e9, uptime)], 3600.0, 10)
            assert sum(row.would != "wait" for row in found) == ended
        assert {outcome.lease.id for outcome in await Reaper(later).recover()} == set(ids)


def _nothing(job: Any) -> Any:
    return released(job.lease)


async def test_a_reaper_outlives_its_server(postgres_server: Postgres) -> None:
    async with product(postgres_server, stays=True) as shop:
        url = shop.url
    async with tables(url) as opened:
        reaper = Reaper(opened, interval=0.2)
        running = asyncio.create_task(reaper.run())
        try:
            await until_async(lambda: reaper.scan_ms is not None, 10, "a first scan")
            await asyncio.to_thread(postgres_server.kill9)
            with pytest.raises(StoreUnavailable):
                await reaper.recover()
            await asyncio.to_thread(postgres_server.start)
            async with running_product(url) as shop:
                id_ = await shop.stuck(lease_expires_at=-1, last_heartbeat_at=-1.5)

                async def put_back() -> bool:
                    return await shop.status(id_) == "queued"

                await until_async(put_back, 20, "the reaper to act")
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
