"""Nobody dies, but the store cannot be reached for longer than a lease: no live worker loses its job for it.

And the other way round: whoever is silent for its lease's length of a store that answers is dead, however often the
server was restarted meanwhile.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from support.folders import APPS, IMPORTABLE
from support.postgres import Postgres
from support.processes import Child
from support.proxy import Proxy
from support.redis import Redis
from support.waiting import until_async

from unstuck import open_store
from unstuck.protocol.availability import SLOW
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Job, Status
from unstuck.protocol.leases import Beat, Verdict
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.stores.sqlite.connection import connect
from unstuck.testing import Harness, Neo4jHarness, PostgresHarness, RedisHarness, SQLiteHarness
from unstuck.testing.conformance.given import look, one_leased

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]
SERVERS: dict[str, Any] = {"pg15": PostgresHarness, "redis7": RedisHarness, "neo4j_server": Neo4jHarness}
LEASE = 4.0


async def ended(store: Store, end: datetime | None) -> bool:
    assert end is not None
    return (await store.clock()).now > end


async def old(store: Store) -> bool:
    """Whether leases that were granted since cannot be forgiven because of the server's start."""
    return (await store.clock()).uptime > 3.0


async def held(store: Store, job: Job) -> bool:
    said = await store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, LEASE)])
    return said.verdicts == {job.lease: Verdict.HELD}


async def recovered(store: Store, reaper: Reaper, job: Job) -> bool:
    await reaper.begin()
    return (await look(store, job.ref)).status is Status.PENDING


@asynccontextmanager
async def cut_off(request: pytest.FixtureRequest, server: str) -> AsyncIterator[tuple[Harness, Store, Proxy]]:
    running = request.getfixturevalue(server)
    async with (
        SERVERS[server](running.url()) as harness,
        Proxy("127.0.0.1", running.port) as proxy,
        open_store(proxy.through(harness.url)) as store,
    ):
        await until_async(lambda: old(harness.store), 30, "the server to be older than any lease")
        yield harness, store, proxy
        proxy.heal()


@pytest.mark.parametrize("server", ["pg15", "redis7", pytest.param("neo4j_server", marks=pytest.mark.long)])
async def test_a_live_worker_keeps_its_job_over_a_cut_of_the_network(
    request: pytest.FixtureRequest, server: str
) -> None:
    async with cut_off(request, server) as (harness, store, proxy):
        reaper = Reaper(store)
        await reaper.begin()
        job = await one_leased(harness.store, seconds=LEASE)
        proxy.reset(new=True)
        await until_async(lambda: failed(reaper), 60, "a recovery to fail")
        await until_async(lambda: ended(harness.store, job.lease_until), 20, "the lease to end")
        proxy.heal()
        await until_async(lambda: seeing(reaper), 60, "a recovery to go through again")

        assert await held(harness.store, job), "it was taken away as soon as the network was back"
        # Which grants nothing for ever: what is silent now is dead.
        await until_async(lambda: recovered(harness.store, reaper, job), 60, "the job to be taken back")
        assert (await look(harness.store, job.ref)).crashes == 1


async def failed(reaper: Reaper) -> bool:
    await reaper.begin()
    return reaper._availability.failing


async def seeing(reaper: Reaper) -> bool:
    return not await failed(reaper)


async def test_a_live_worker_keeps_its_job_while_another_process_holds_the_write_lock(
    harness: SQLiteHarness,
) -> None:
    other = await harness.another()  # of a second worker, whose reaper sleeps when the lock is taken
    reapers = [Reaper(harness.store), Reaper(other)]
    for reaper in reapers:
        await reaper.begin()
    job = await one_leased(harness.store, seconds=LEASE)
    theirs = connect(harness.url.removeprefix("sqlite:///"))
    theirs.execute("BEGIN IMMEDIATE")
    try:
        waiting = [asyncio.create_task(reaper.recover()) for reaper in reapers]
        await until_async(lambda: ended(harness.store, job.lease_until), 20, "the lease to end")
        await asyncio.sleep(SLOW)  # so that the wait was longer than any that is not taken for one
        assert not any(one.done() for one in waiting)
    finally:
        theirs.execute("ROLLBACK")
        theirs.close()

    assert await asyncio.gather(*waiting) == [[], []], "taken by whoever had the lock first"
    assert [await reaper.recover() for reaper in reapers] == [[], []], "or right after"
    assert await held(harness.store, job)
    await until_async(lambda: recovered(harness.store, reapers[0], job), 30, "the job to be taken back")


@asynccontextmanager
async def one_of(request: pytest.FixtureRequest, kind: str, folder: Path) -> AsyncIterator[Harness]:
    if kind == "sqlite":
        async with SQLiteHarness(folder) as on_file:
            yield on_file
        return
    running = request.getfixturevalue("neo4j_server")
    async with Neo4jHarness(running.url()) as harness:
        await until_async(lambda: old(harness.store), 30, "the server to be older than any lease")
        await Reaper(harness.store).recover()  # a first statement of its kind takes the server long
        yield harness


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("neo4j", marks=pytest.mark.long)])
async def test_a_live_worker_keeps_its_job_if_another_was_stopped_with_the_locks_in_hand(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    """Nobody can beat meanwhile, and only the one that was stopped does not know.

    A client of PostgreSQL or Redis holds no lock that a beat needs: what it leases is one statement, or one script.
    """
    async with one_of(request, kind, tmp_path) as harness:
        argv = [sys.executable, str(APPS / "stopped_app.py"), harness.url, kind]
        with Child(argv, tmp_path / "stopped.log", env={"PYTHONPATH": IMPORTABLE}) as child:
            await child.until_line_async("has recovered", 60)  # to come so far may take longer than a lease
            job, other = [await one_leased(harness.store, seconds=LEASE) for _ in range(2)]
            child.terminate(signal.SIGUSR1)
            await child.until_line_async("stops", 60)
            beat = asyncio.create_task(held(harness.store, other))
            await until_async(lambda: ended(harness.store, job.lease_until), 20, "the lease to end")
            await asyncio.sleep(SLOW)
            assert not beat.done(), "a beat came through: the test holds no lock"
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
            child.resume()
            await child.until_line_async("looked for leases that ran out", 60)
            assert await held(harness.store, job), "it was taken away by the worker that was stopped"
            # Which grants nothing for ever: what is silent now is dead.
            await until_async(lambda: pending(harness.store, job), 60, "the job to be taken back", child.log)


async def pending(store: Store, job: Job) -> bool:
    return (await look(store, job.ref)).status is Status.PENDING


@pytest.mark.parametrize("kind", ["pg15", "redis7"])
async def test_a_dead_workers_job_comes_back_although_the_server_is_restarted_again_and_again(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """No run of the server is as long as the lease; all of them together are."""
    server: Postgres | Redis = request.getfixturevalue(kind)
    url = server.create_database() if isinstance(server, Postgres) else f"{server.url()}?prefix=restarted"
    async with open_store(url) as store:
        await store.migrate()
        reaper = Reaper(store)
        job = await one_leased(store, seconds=8.0)
        runs = 0
        while (await look(store, job.ref)).status is Status.PROCESSING:
            assert runs < 8, "each restart granted the lease again"
            runs += 1
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await until_async(lambda: seeing(reaper), 30, "the server to answer")
            up = asyncio.get_running_loop().time() + 3.0
            while asyncio.get_running_loop().time() < up:
                await reaper.begin()
                await asyncio.sleep(0.2)
