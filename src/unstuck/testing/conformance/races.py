"""Races: many clients at the same moment, on one event loop and in several processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter

import pytest

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Lease, Status
from unstuck.protocol.leases import Beat, Verdict
from unstuck.protocol.outcome import Settled, completed, released, retried
from unstuck.recovery.reaper import Reaper
from unstuck.testing.conformance.given import counts, enqueued, leased, look, new, one_leased, states, trouble
from unstuck.testing.harnesses.harness import Harness

CLIENTS = 6


@pytest.mark.accepts("EMB-157", "MQ-015")
async def test_many_leasers_get_disjoint_sets_and_nothing_is_left(harness: Harness) -> None:
    await enqueued(harness.store, 200)
    stores = [await harness.another() for _ in range(CLIENTS)]

    async def drain(number: int) -> list[str]:
        taken: list[str] = []
        while jobs := await leased(stores[number], 5, owner=f"w{number}"):
            taken += [job.id for job in jobs]
        return taken

    shares = await asyncio.gather(*map(drain, range(CLIENTS)))
    assert sum(bool(share) for share in shares) > 1, "one had them all"
    taken = [id_ for one in shares for id_ in one]
    assert len(taken) == len(set(taken)) == 200


_LEASER = """
import asyncio, json, sys
from unstuck import open_store
from unstuck.protocol.leases import Share

async def main(url, owner):
    async with open_store(url) as store:
        taken = []
        while jobs := await store.lease({"q": Share(60.0, 3)}, 3, owner):
            taken += [job.id for job in jobs]
        print(json.dumps(taken))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_get_disjoint_sets_too(harness: Harness) -> None:
    await enqueued(harness.store, 300)

    processes = [
        subprocess.Popen(  # noqa: ASYNC220 - started together, read below
            [sys.executable, "-c", _LEASER, harness.url, f"p{number}"], stdout=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    outputs = [(await asyncio.to_thread(process.communicate))[0] for process in processes]

    assert [process.returncode for process in processes] == [0] * 4, (
        "open_store(harness.url) must work anywhere"
    )
    taken = [id_ for output in outputs for id_ in json.loads(output)]
    assert len(taken) == len(set(taken)) == 300


async def test_one_key_from_fifty_callers_is_one_job(harness: Harness) -> None:
    stores = [await harness.another() for _ in range(CLIENTS)]

    answers = await asyncio.gather(
        *(stores[n % CLIENTS].enqueue([new(key="k", payload=1)]) for n in range(50))
    )

    assert sum(answer.created for [answer] in answers) == 1
    assert len({answer.ref for [answer] in answers}) == 1
    assert await states(harness.store) == {"pending": 1}


@pytest.mark.accepts("REC-078", "REAP-091")
async def test_many_reapers_at_once_end_each_lease_once(harness: Harness) -> None:
    await enqueued(harness.store, 100)
    await leased(harness.store, 100)
    await harness.age(61)
    stores = [await harness.another() for _ in range(CLIENTS)]

    done = await asyncio.gather(*(Reaper(store).recover() for store in stores))

    ended = Counter(outcome.lease.id for one in done for outcome in one)
    assert len(ended) == 100
    assert set(ended.values()) == {1}
    of = await counts(harness.store)
    assert (of.pending, of.totals["reaper.requeues"], of.totals["crashed"]) == (100, 100, 100)


async def test_one_lease_settled_by_many_at_once_is_applied_once(harness: Harness) -> None:
    job = await one_leased(harness.store)
    stores = [await harness.another() for _ in range(CLIENTS)]
    endings = [completed(job.lease), released(job.lease), retried(job.lease, trouble(), 0.0)] * 2

    answers = await asyncio.gather(
        *(store.settle([ending]) for store, ending in zip(stores, endings, strict=True))
    )

    flat = [answer for [answer] in answers]
    assert flat.count(Settled.APPLIED) == 1
    assert flat.count(Settled.REPEATED) == 1
    assert flat.count(Settled.LOST) == 4


async def test_beats_and_settles_that_cross_never_block_or_resurrect(harness: Harness) -> None:
    await enqueued(harness.store, 60)
    jobs = await leased(harness.store, 60)
    leases = [job.lease for job in jobs]
    other = await harness.another()

    async def beat() -> None:
        for _ in range(20):
            await other.heartbeat(WorkerInfo(id="w"), [Beat(lease, 60.0) for lease in reversed(leases)])

    async def settle() -> None:
        for start in range(0, 60, 6):
            await harness.store.settle([completed(lease) for lease in leases[start : start + 6]])

    await asyncio.gather(beat(), settle())
    assert await states(harness.store) == {"completed": 60}


@pytest.mark.accepts("REC-074")
async def test_a_beat_and_a_recovery_at_the_same_moment_agree_on_one_winner(harness: Harness) -> None:
    await enqueued(harness.store, 40)
    leases = [job.lease for job in await leased(harness.store, 40)]
    await harness.age(61)
    other = await harness.another()

    async def beat() -> dict[Lease, Verdict]:
        answers: dict[Lease, Verdict] = {}
        for start in range(0, 40, 4):
            beats = [Beat(lease, 60.0) for lease in leases[start : start + 4]]
            answers |= (await other.heartbeat(WorkerInfo(id="w"), beats)).verdicts
        return answers

    answers, reaped = await asyncio.gather(beat(), Reaper(harness.store).recover())

    lost = {lease.id for lease, verdict in answers.items() if verdict is Verdict.LOST}
    assert set(answers) == set(leases)
    assert lost == {outcome.lease.id for outcome in reaped}
    of = await counts(harness.store)
    assert (of.processing, of.pending) == (40 - len(lost), len(lost))


async def test_reaper_and_late_holder_agree_on_one_winner(harness: Harness) -> None:
    await enqueued(harness.store, 40)
    jobs = await leased(harness.store, 40)
    await harness.age(61)
    other = await harness.another()

    async def finish() -> list[Lease]:
        return [job.lease for job in jobs if await other.settle([completed(job.lease)]) == [Settled.APPLIED]]

    won, reaped = await asyncio.gather(finish(), Reaper(harness.store).recover())

    assert len(won) + len(reaped) == 40
    of = await counts(harness.store)
    assert (of.completed, of.pending) == (len(won), len(reaped))


async def test_cancel_wins_over_a_completion_that_comes_later(harness: Harness) -> None:
    await enqueued(harness.store, 40)
    jobs = await leased(harness.store, 40)
    other = await harness.another()

    cancelled, answers = await asyncio.gather(
        harness.store.cancel([job.ref for job in jobs[:20]]),
        asyncio.gather(*(other.settle([completed(job.lease)]) for job in jobs)),
    )

    applied = sum(answer == [Settled.APPLIED] for answer in answers)
    of = await counts(harness.store)
    assert (of.completed, of.cancelled) == (applied, cancelled)
    assert applied + cancelled == 40


async def test_a_pause_is_a_barrier(harness: Harness) -> None:
    await enqueued(harness.store, 300)
    other = await harness.another()
    paused = asyncio.Event()
    after: list[str] = []

    async def work() -> None:
        while True:
            begun_after = paused.is_set()
            jobs = await leased(other, 1)
            if begun_after:
                after.extend(job.id for job in jobs)
                return

    working = asyncio.create_task(work())
    await asyncio.sleep(0.02)
    await harness.store.pause("q", "stop")
    paused.set()
    await working

    assert after == []


async def test_many_clients_may_migrate_at_once(harness: Harness) -> None:
    stores = [await harness.another() for _ in range(CLIENTS)]

    await asyncio.gather(*(store.migrate() for store in stores))

    await enqueued(harness.store)
    assert await states(stores[0]) == {"pending": 1}


async def test_the_same_worker_name_on_two_leases_of_one_job_does_not_confuse(harness: Harness) -> None:
    first = await one_leased(harness.store, owner="twin", seconds=10.0)
    await harness.age(11)
    await Reaper(harness.store).recover()
    [second] = await leased(harness.store, owner="twin")

    answer = await harness.store.heartbeat(
        WorkerInfo(id="twin"), [Beat(first.lease, 60.0), Beat(second.lease, 60.0)]
    )

    assert answer.verdicts == {first.lease: Verdict.LOST, second.lease: Verdict.HELD}
    assert await harness.store.settle([completed(first.lease)]) == [Settled.LOST]
    assert (await look(harness.store, second.ref)).status is Status.PROCESSING
