"""A handler that blocks the event loop for good: what has not begun goes to others, and the process is replaced."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest
from support.neo4j import Neo4j
from support.postgres import Postgres
from support.redis import Redis
from support.workers import Workers, worker_of

from unstuck import Status
from unstuck.protocol.outcome import completed
from unstuck.testing import Harness, Neo4jHarness, PostgresHarness, RedisHarness, SQLiteHarness
from unstuck.testing.conformance.given import enqueued, leased, look
from unstuck.worker.held_leases import HeldLeases
from unstuck.worker.loop_watch import LoopWatch
from unstuck.worker.outbox import Outbox

# Whoever comes first waits for the server's start, too.
pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]

STORES = ["sqlite", "postgres", "redis", "neo4j"]


@pytest.fixture
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    made: Harness
    match getattr(request, "param", "sqlite"):
        case "postgres":
            server: Postgres = request.getfixturevalue("pg15")
            made = PostgresHarness(server.url())
        case "redis":
            redis: Redis = request.getfixturevalue("redis7")
            made = RedisHarness(redis.url())
        case "neo4j":
            neo4j: Neo4j = request.getfixturevalue("queue_server")
            made = Neo4jHarness(neo4j.url())
        case _:
            made = SQLiteHarness(tmp_path)
    async with made as harness:
        yield harness


@pytest.mark.parametrize("harness", STORES, indirect=True)
async def test_what_has_not_begun_goes_to_others_and_the_process_is_replaced(workers: Workers) -> None:
    """The lease is 2 s. The first of five jobs that were leased together blocks the loop before the others begin."""
    blocked = workers.start("--recovery", "60")
    first = worker_of(blocked)
    [early] = await workers.enqueue("short_step", queue="short")  # a fresh server is slower than the lease
    await workers.over(early, 60, blocked)
    await workers.store.pause("short", "until all are there")
    [blocking] = await workers.enqueue("block_the_loop", queue="short", gate=workers.gate, max_attempts=1)
    await asyncio.sleep(0.02)  # it is the older one, by the clock of every store
    others = await workers.enqueue("short_step", 4, queue="short")
    await workers.store.pause("short", None)
    await workers.begun(blocking, blocked)
    workers.start("--processes", "0", "--recovery", "0")

    jobs = {job.ref: job for job in await workers.finished(120, blocked)}

    assert "gave back 4 jobs" in blocked.until_line("gave back .* event loop of its worker was blocked")
    assert {(jobs[ref].status, jobs[ref].attempts, jobs[ref].crashes) for ref in others} == {
        (Status.COMPLETED, 1, 0)
    }
    assert Counter(run.job for run in workers.ledger.runs()) == Counter({ref.id: 1 for ref in jobs})
    job = jobs[blocking]
    assert job.error is not None
    assert (job.status, job.crashes, job.error.code) == (Status.FAILED, 1, "crashed")
    assert "the event loop did not turn for" in job.error.message
    assert "family_app.py:" in job.error.message
    assert job.error.message.endswith("in task block_the_loop")
    await blocked.until_line_async(f"worker process {first} died")
    [later] = await workers.enqueue("short_step", queue="short")
    await workers.over(later, 30, blocked)


async def test_the_timeout_of_a_handler_that_blocks_holds_in_its_next_attempt(workers: Workers) -> None:
    """It has crashed before, so it runs in a process of its own, which can be killed."""
    [ref] = await workers.enqueue(
        "block_the_loop", queue="short", gate=workers.gate, timeout=1.0, max_attempts=2
    )
    worker = workers.start()

    job = await workers.over(ref, 60, worker)

    assert job.error is not None
    assert (job.status, job.attempts, job.crashes, job.error.code) == (Status.FAILED, 2, 1, "timeout")


async def test_a_worker_without_a_supervisor_logs_it_and_starts_nothing_that_it_gave_back(
    workers: Workers,
) -> None:
    [blocking] = await workers.enqueue("block_the_loop", queue="short", gate=workers.gate)
    await asyncio.sleep(0.02)
    others = await workers.enqueue("short_step", 4, queue="short")
    worker = workers.start("--processes", "0", "--recovery", "60")
    await workers.begun(blocking, worker)
    await worker.until_line_async("gave back 4 jobs that had not begun")
    assert {(await workers.job(ref)).status for ref in others} == {Status.PENDING}
    await worker.until_line_async("in task block_the_loop, which is longer than a lease. Nobody can end that")

    workers.open(1)
    jobs = await workers.finished(60, worker)

    assert {(job.status, job.attempts, job.crashes) for job in jobs} == {(Status.COMPLETED, 1, 0)}
    assert Counter(run.job for run in workers.ledger.runs()) == Counter({job.id: 1 for job in jobs})


async def test_what_was_done_before_the_loop_was_blocked_is_written_before_the_process_ends(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enqueued(harness.store, 2)
    done, blocking = await leased(harness.store, 2, owner="w")
    outbox = Outbox(harness.store)
    outbox.add(completed(done.lease, None))
    held = HeldLeases("w", outbox, asyncio.Event())
    watch = LoopWatch(held, outbox, longest=20.0, recovery=True, supervised=True)

    class Ended(Exception):
        pass

    def end(_: int) -> NoReturn:
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(Ended):
        await watch._give_up(harness.store)

    assert (await look(harness.store, done.ref)).status is Status.COMPLETED
    assert (await look(harness.store, blocking.ref)).crashes == 1
