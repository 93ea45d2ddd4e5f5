"""Interleavings on Neo4j that a store gets wrong when it is written in the natural way, built for real.

Another session holds a job's lock while the store waits for it: what was read before the lock is stale then.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from support.neo4j import Neo4j
from support.neo4j_moments import CANCEL, holding, waits
from support.processes import Child
from support.waiting import until_async

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Status
from unstuck.protocol.leases import Beat, Recovery, Verdict
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Settled, completed, released
from unstuck.recovery.reaper import Reaper
from unstuck.stores.neo4j.store import Neo4jStore
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import counts, enqueued, leased, look, one_leased, states

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

NAIVE = """
MATCH (j:Harness) WHERE j.status = 'processing' AND j.lock_until < timestamp()
SET j.status = 'pending', j.lock_owner = null, j.lock_until = null RETURN count(j)
"""
BEAT = "MATCH (j:Harness {job_id: $id}) SET j.lock_until = timestamp() + 60000, j.heartbeat_at = timestamp()"


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[Neo4jHarness]:
    async with Neo4jHarness(neo4j_server.url()) as harness:
        yield harness


async def test_a_natural_looking_recovery_takes_a_job_whose_beat_it_has_waited_for(
    harness: Neo4jHarness,
) -> None:
    """So this is what the tests below are about."""
    job = await one_leased(harness.store, seconds=10.0)
    await harness.age(11)

    async with holding(harness, BEAT, id=job.id):
        naive = asyncio.create_task(harness.rows(NAIVE))

    assert await naive == [(1,)]
    assert (await look(harness.store, job.ref)).status is Status.PENDING


async def test_recovery_that_waited_for_a_beat_leaves_the_job_to_its_holder(harness: Neo4jHarness) -> None:
    job = await one_leased(harness.store, seconds=10.0)
    await harness.age(11)

    async with holding(harness, BEAT, id=job.id):
        recovery = asyncio.create_task(harness.store.reclaim(Recovery("reaper", 30.0, 10)))

    assert (await recovery).jobs == []
    assert (await look(harness.store, job.ref)).lease == job.lease


async def test_a_heartbeat_that_waited_for_recovery_learns_that_its_lease_is_lost(
    harness: Neo4jHarness,
) -> None:
    job = await one_leased(harness.store, seconds=10.0)
    taking = "MATCH (j:Harness {job_id: $id}) SET j.fence = j.fence + 1, j.lock_owner = 'reaper'"

    async with holding(harness, taking, id=job.id):
        beat = asyncio.create_task(harness.store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, 60.0)]))

    assert (await beat).verdicts == {job.lease: Verdict.LOST}


async def test_a_lease_that_waited_for_a_cancellation_leaves_the_job(harness: Neo4jHarness) -> None:
    first, second = await enqueued(harness.store, 2)

    async with holding(harness, CANCEL, id=first.id):
        lease = asyncio.create_task(leased(harness.store, 2))

    assert [job.ref for job in await lease] == [second]
    job = await look(harness.store, first)
    assert (job.status, job.fence) == (Status.FAILED, 7777)


@pytest.mark.parametrize("step", ["reclaim", "reclaim_of", "settle", "complete", "beat", "cancel"])
async def test_nobody_puts_back_what_he_read_before_he_had_the_lock(harness: Neo4jHarness, step: str) -> None:
    job = await one_leased(harness.store, seconds=10.0, owner="w")
    await harness.age(11)
    steps: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "reclaim": lambda: harness.store.reclaim(Recovery("reaper", 30.0, 10)),
        "reclaim_of": lambda: harness.store.reclaim(Recovery("reaper", 30.0, 10, of=["w"])),
        "settle": lambda: harness.store.settle([released(job.lease)]),
        "complete": lambda: harness.store.settle([completed(job.lease)]),
        "beat": lambda: harness.store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, 60.0)]),
        "cancel": lambda: harness.store.cancel([job.ref]),
    }

    async with holding(harness, CANCEL, id=job.id):
        waiting = asyncio.create_task(steps[step]())
    await waiting

    after = await look(harness.store, job.ref)
    assert (after.status, after.fence, after.owner) == (Status.FAILED, job.fence + 7777, None)
    assert after.finished_at is not None


async def test_the_clock_is_read_when_the_lock_is_had(harness: Neo4jHarness) -> None:
    [ref] = await enqueued(harness.store)
    touch = "MATCH (j:Harness {job_id: $id}) SET j.priority = 0"

    async with holding(harness, touch, id=ref.id):
        lease = asyncio.create_task(leased(harness.store, seconds=60.0))
        await until_async(lambda: waits(harness), 30, "the lease to wait")
        await asyncio.sleep(1.0)
        before = await harness.store.clock()

    [job] = await lease
    assert job.started_at is not None
    assert job.started_at >= before.now


_LEASER = """
import asyncio, json, sys
from unstuck import open_store
from unstuck.protocol.leases import Share

async def main(url, owner):
    async with open_store(url) as store:
        taken = []
        while jobs := await store.lease({"q": Share(60.0, 10)}, 10, owner):
            taken += [job.id for job in jobs]
        print(json.dumps(taken))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_eight_processes_get_disjoint_sets_and_nothing_is_left(
    harness: Neo4jHarness, tmp_path: Path
) -> None:
    await enqueued(harness.store, 2000)
    logs = [tmp_path / f"{number}.log" for number in range(8)]
    argv = [sys.executable, "-c", _LEASER, harness.url]

    children = [Child([*argv, f"p{number}"], log) for number, log in enumerate(logs)]
    for child in children:
        assert await asyncio.to_thread(child.wait, 100) == 0, child.log.read_text()

    taken = Counter(id_ for log in logs for id_ in json.loads(log.read_text()))
    assert len(taken) == 2000
    assert set(taken.values()) == {1}
    assert (await counts(harness.store)).processing == 2000


async def test_two_recoveries_at_the_same_time_end_each_lease_once(harness: Neo4jHarness) -> None:
    await enqueued(harness.store, 300)
    await leased(harness.store, 300)
    await harness.age(61)
    other = await harness.another()

    done = await asyncio.gather(Reaper(harness.store).recover(), Reaper(other).recover())

    ended = Counter(outcome.lease.id for one in done for outcome in one)
    assert len(ended) == 300
    assert set(ended.values()) == {1}
    assert await states(harness.store) == {"pending": 300}
    found = (await harness.store.find(Filter(status=Status.PENDING), 1000)).jobs
    assert {(job.attempts, job.crashes) for job in found} == {(1, 1)}


async def test_batches_that_cross_are_all_settled_without_a_deadlock_being_reported(
    harness: Neo4jHarness,
) -> None:
    """Sorted, they wait for each other in one direction; what still meets is tried again."""
    await enqueued(harness.store, 200)
    jobs = await leased(harness.store, 200)
    stores = [await harness.another() for _ in range(4)]
    beats = [Beat(job.lease, 60.0) for job in jobs]

    async def beat(number: int) -> None:
        for _ in range(5):
            await stores[number].heartbeat(WorkerInfo(id="w"), beats if number % 2 else list(reversed(beats)))

    async def cancel() -> int:
        return await stores[0].cancel([job.ref for job in reversed(jobs[:100])])

    async def settle() -> list[Settled]:
        return [
            answer
            for start in range(0, 200, 20)
            for answer in await harness.store.settle(
                [completed(job.lease) for job in jobs[start : start + 20]]
            )
        ]

    async def beat_all() -> None:
        await asyncio.gather(*map(beat, range(4)))

    cancelled, answers, _ = await asyncio.gather(cancel(), settle(), beat_all())

    assert cancelled + answers.count(Settled.APPLIED) == 200
    of = await counts(harness.store)
    assert (of.completed, of.cancelled) == (answers.count(Settled.APPLIED), cancelled)


async def test_totals_are_right_while_their_counters_are_folded(harness: Neo4jHarness) -> None:
    store, pieces, rounds = harness.store, 500, 20
    assert isinstance(store, Neo4jStore)
    folding = True
    seen: list[int] = []

    async def count() -> None:
        while folding:
            [of] = await store.count()
            seen.append(of.totals["completed"])

    add = "UNWIND range(1, $pieces) AS _ CREATE (:HarnessCounter {queue: 'q', name: 'completed', value: 1})"
    await harness.rows(add, pieces=pieces)
    counting = [asyncio.create_task(count()) for _ in range(3)]
    for _ in range(rounds):
        await harness.rows(add, pieces=pieces)
        await store._opened().ask("fold", {"many": 1})
    folding = False
    await asyncio.gather(*counting)

    assert all(pieces <= total <= pieces * (rounds + 1) for total in seen), sorted(set(seen))
    [of] = await store.count()
    assert of.totals["completed"] == pieces * (rounds + 1)
