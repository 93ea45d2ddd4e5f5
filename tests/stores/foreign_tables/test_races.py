"""Tables of a product under fire: live claims and beats, old workers, many reapers, a server that restarts."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import pytest
from support.postgres import Postgres
from support.product import OldWorker, Product, product, recovery, tables, types
from support.product import running as running_product
from support.waiting import until_async

from unstuck import Reaper, open_store
from unstuck.protocol.availability import Availability, Clock
from unstuck.protocol.errors import StoreUnavailable
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.leases import Beat, Share
from unstuck.protocol.outcome import Settled, completed, failed, released, retried
from unstuck.protocol.store import Store
from unstuck.stores import open_tables
from unstuck.stores.postgres.foreign import locked
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
            WorkerInfo(id=owner, queues=("jobs",)), [Beat(job.lease, 30.0) for job in jobs]
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
            settled[f"{outcome.ending}:{answer}"] += 1


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
            seen = Availability().look(Clock((await opened.clock()).now, uptime))
            found = await later.stuck(_nothing, seen, 3600.0, 10)
            assert sum(not row.would.startswith("wait until 20") for row in found) == ended
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


async def test_after_a_restart_a_lost_row_waits_for_the_length_of_its_lease_however_old_its_last_beat(
    postgres_server: Postgres,
) -> None:
    """Its worker renewed the lease and never beat, or the beat is that of an attempt a month ago."""
    month = -30 * 86400
    async with product(postgres_server) as shop, tables(shop.url, "jobs") as opened:
        id_ = await shop.stuck(lease_expires_at=-60, last_heartbeat_at=month)
        long = await shop.stuck(lease_expires_at=-60, last_heartbeat_at=month, expected_duration_ms=100_000)
        now = (await opened.clock()).now
        at = {}
        for uptime in (10.0, 200.0, 400.0, 500.0, 700.0):
            seen = Availability().look(Clock(now, uptime))
            for row in await opened.stuck(_nothing, seen, 3600.0, 10):
                at[row.id, uptime] = row.would.removeprefix("wait until ")
        for one, lease in ((id_, 300), (long, 600)):  # 6 times what a clip should take
            until = datetime.strptime(f"{at[one, 10.0]}+0000", "%Y-%m-%d %H:%M:%S UTC%z")
            assert (until - now).total_seconds() == pytest.approx(lease - 10, abs=1.1)
        for uptime, ended in ((200.0, []), (400.0, [id_]), (500.0, [id_]), (700.0, [id_, long])):
            assert [one for one in (id_, long) if not at[one, uptime].endswith("UTC")] == ended
            opened.clock = still(Clock(now, uptime))  # type: ignore[method-assign]
            await Reaper(opened).recover()
            for one in (id_, long):
                expected = "queued" if one in ended else "processing"
                assert (await shop.row(one))["status"] == expected


def still(clock: Clock) -> Callable[[], Coroutine[Any, Any, Clock]]:
    async def told() -> Clock:
        return clock

    return told


@pytest.mark.parametrize("postgres_server", ["15"], indirect=True)
async def test_a_row_that_was_given_a_lease_lives_as_long_as_its_old_worker_shows_signs(
    shop: Product,
) -> None:
    id_ = await shop.add(created_at=-90_000, updated_at=-90_000)
    with OldWorker(shop.url) as worker:
        worker.take()
        await recovery(shop)
        await shop.age(3700)
        await shop.say("UPDATE jobs SET progress = 10, updated_at = now()")  # it knows no other way
        assert await recovery(shop) == ([], ())
        left = await shop.left(id_, "lease_expires_at")
        assert left is not None
        assert left > 3500

        await shop.say(
            "UPDATE jobs SET status = 'queued', updated_at = now() - interval '9 h'"
        )  # the lease stays behind
        await shop.age(3700)
        worker.take()
        await shop.say("UPDATE jobs SET updated_at = now()")
        assert await recovery(shop) == ([], ())
    await shop.age(4000)
    await shop.say("UPDATE jobs SET updated_at = now() - interval '9 h'")
    assert (await recovery(shop))[0] == ["reaper:requeued"]
