"""Worker processes on Redis that are killed and frozen, also beside workers of BullMQ's: every job ends once."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from patient_app import LEASE
from support.fleet import frozen_past_its_lease, killed_at_random
from support.node import Node
from support.processes import Child
from support.redis import Redis
from support.waiting import until_async
from support.workers import Workers, worker_of

from unstuck import Filter, Status
from unstuck.operations.verify import broken_rules
from unstuck.protocol.job import Job
from unstuck.testing import RedisHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

APART = ("unshare", "--pid", "--fork", "--mount-proc")  # as another host: its pids mean nothing to the others


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


async def test_workers_killed_at_random_lose_no_job_and_complete_each_once(workers: Workers) -> None:
    await killed_at_random(workers, 150, 4)


async def test_a_killed_workers_jobs_are_back_at_once(workers: Workers) -> None:
    [ref] = await workers.enqueue("step", seconds=60.0)
    supervisor = workers.start("--processes", "1", "--recovery", "60")
    await workers.begun(ref, supervisor)
    victim = worker_of(supervisor)
    began = time.monotonic()
    os.kill(victim, signal.SIGKILL)

    async def back() -> bool:
        return (await workers.job(ref)).crashes == 1

    await until_async(back, 20, "the job to be taken back", supervisor.log)
    assert time.monotonic() - began < 2.0


async def test_a_dead_hosts_jobs_are_with_another_within_their_lease_and_two_seconds(
    workers: Workers, tmp_path: Path
) -> None:
    """Supervisor and workers die in one moment: nobody is left who could tell, so only the leases can."""
    enough = tmp_path / "enough"
    refs = await workers.enqueue("outlast", 10, queue="patient", until=str(enough), max_attempts=5)
    host = workers.start("--processes", "2", "--recovery", "1", app="patient_app:app", before=APART)

    async def held() -> set[str | None]:
        """By whom all of them are, once both workers have their share."""
        owners = {job.owner for job in await workers.jobs()} - {None}
        return owners if len(owners) == 2 and len(workers.ledger.runs()) == len(refs) else set()

    dead = await until_async(held, 30, "two workers to hold all jobs", host.log)
    other = workers.start("--processes", "0", "--concurrency", "10", app="patient_app:app")
    await other.until_line_async("takes", 30)
    killed = (await workers.store.clock()).now
    host.kill("family")
    ends = {job.id: job.lease_until for job in await workers.jobs()}

    async def taken() -> list[Job]:
        jobs = await workers.jobs()
        living = [job for job in jobs if job.owner not in {None, *dead} and job.attempts == 2]
        return living if len(living) == len(refs) else []

    jobs = await until_async(taken, 30, "the other host to have them", other.log)
    started = {job.id: job.started_at for job in jobs if job.started_at is not None}
    assert max(started.values()) - killed < timedelta(seconds=LEASE + 2.0)
    for job in jobs:
        assert job.error is not None
        assert (job.crashes, job.error.code, job.error.reason) == (1, "timeout", "lease_expired")
        end = ends[job.id]
        assert end is not None
        assert started[job.id] > end, "it was taken from somebody whose lease had not run out"
        assert await workers.events(job.ref) == ["reaper:requeued"]
    enough.touch()
    assert {job.status for job in await workers.finished(30, other)} == {Status.COMPLETED}


async def test_a_worker_frozen_past_its_lease_is_replaced_and_its_late_outcome_refused(
    workers: Workers,
) -> None:
    await frozen_past_its_lease(workers, over=True)


@pytest.mark.parametrize(
    ("jobs", "kills"), [(300, 3), pytest.param(2000, 20, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
async def test_a_mixed_fleet_under_kills_ends_every_job_exactly_once(
    workers: Workers, redis7: Redis, harness: RedisHarness, tmp_path: Path, jobs: int, kills: int
) -> None:
    """Half the jobs are ours, half BullMQ's; workers of either side take both, and are killed at random."""
    chance, node = random.Random(4711), Node()
    where = (str(redis7.port), harness.prefix, "mixed")
    theirs = [{"task": "step", "data": {"seconds": 0.3}, "opts": {"attempts": 200}}] * (jobs // 2)
    with ExitStack() as stack:

        def of_node(number: int) -> Child:
            return stack.enter_context(
                node.start(tmp_path / f"node-{number}.log", "work", *where, 10**6, 300)
            )

        def of_ours(_: int) -> Child:
            return workers.start("--processes", "0", "--recovery", "1", app="mixed_app:app")

        fleet = [(start, start(number)) for number in range(2) for start in (of_node, of_ours)]
        for _, child in fleet:
            await child.until_line_async("ready|takes", 30)
        await workers.enqueue("step", jobs // 2, queue="mixed", seconds=0.3, max_attempts=200)
        await asyncio.to_thread(node, "produce", *where, theirs)
        for number in range(2 * kills):
            enough = (number + 1) * jobs // (2 * kills + 2)
            await until_async(lambda: _finished(harness, enough), 120, f"{enough} jobs to end")  # noqa: B023
            place = 2 * chance.randrange(2) + number % 2
            start, victim = fleet[place]
            victim.close()  # SIGKILL
            fleet[place] = (start, start(number + 2))
        await until_async(lambda: _finished(harness, jobs), 120, "all jobs to end")

    assert [job for job in await _all(harness) if job.status is not Status.COMPLETED] == []
    heard = await harness.client.xrange(f"{harness.prefix}:mixed:events", "-", "+")
    said = Counter(fields[b"jobId"] for _, fields in heard if fields[b"event"] == b"completed")
    assert set(said.values()) == {1}, "a job was completed twice"
    by = Counter(fields.get(b"by", b"node") for _, fields in heard if fields[b"event"] == b"completed")
    assert set(by) == {b"node", b"unstuck"}, "one side did nothing"
    assert await broken_rules(harness.store) == []


async def _finished(harness: RedisHarness, count: int) -> bool:
    [of] = [of for of in await harness.store.count() if of.queue == "mixed"]
    return of.completed + of.failed >= count


async def _all(harness: RedisHarness) -> list[Job]:
    found: list[Job] = []
    cursor = None
    while True:
        page = await harness.store.find(Filter(queue="mixed"), 1000, cursor)
        found += page.jobs
        if (cursor := page.cursor) is None:
            return found
