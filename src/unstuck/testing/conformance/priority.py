"""Priority: higher is sooner, and nobody waits for ever. A point of priority is a head start of 60 seconds."""

from __future__ import annotations

import pytest

from unstuck.protocol.job import NewJob, Status
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed
from unstuck.testing.conformance.given import enqueued, leased, new
from unstuck.testing.harnesses.harness import Harness


@pytest.mark.accepts("MQ-030", "MQ-031")
async def test_a_high_priority_job_runs_before_lower_ones_that_wait_already(harness: Harness) -> None:
    low = await enqueued(harness.store, 5, priority=0)
    middle = await enqueued(harness.store, 1, priority=4)
    high = await enqueued(harness.store, 1, priority=9)

    assert [job.ref for job in await leased(harness.store, 10)] == [*high, *middle, *low]


@pytest.mark.accepts("MQ-032")
async def test_nobody_starves_under_a_constant_stream_of_urgent_jobs(harness: Harness) -> None:
    """Each round brings more urgent jobs than are done, so waiting for a gap would never end.

    Ahead of the plain job are the urgent ones of the first nine rounds, and no others: 27 jobs, two a round.
    """
    [plain] = await enqueued(harness.store, priority=0)
    for rounds in range(15):
        await enqueued(harness.store, 3, priority=9)
        jobs = await leased(harness.store, 2)
        await harness.store.settle([completed(job.lease) for job in jobs])
        if plain in [job.ref for job in jobs]:
            assert rounds >= 9, "it must not overtake urgent jobs before it has waited out their head start"
            return
        await harness.age(60)
    raise AssertionError("the plain job was never run")


@pytest.mark.accepts("MQ-032")
async def test_an_urgent_job_is_not_stuck_behind_a_flood(harness: Harness) -> None:
    await harness.store.enqueue([new(priority=0) for _ in range(2000)])
    [urgent] = await enqueued(harness.store, priority=1)

    assert [job.ref for job in await leased(harness.store, 1)] == [urgent]


async def test_a_delayed_urgent_job_has_no_head_start_before_it_is_due(harness: Harness) -> None:
    [later] = await enqueued(harness.store, priority=9, delay=300.0)
    [plain] = await enqueued(harness.store, priority=0)

    assert [job.ref for job in await leased(harness.store, 1)] == [plain]
    await harness.age(301)
    [fresh] = await enqueued(harness.store, priority=0)
    assert [job.ref for job in await leased(harness.store, 2)] == [later, fresh]


async def test_many_delayed_jobs_do_not_hide_the_due_one(harness: Harness) -> None:
    many: list[NewJob] = [new(priority=9, delay=3600.0) for _ in range(3000)]
    await harness.store.enqueue(many)
    [due] = await enqueued(harness.store)

    assert [job.ref for job in await leased(harness.store, 10)] == [due]
    assert len((await harness.store.find(Filter(status=Status.PENDING), 1000)).jobs) == 1000


async def test_of_many_delayed_jobs_the_first_due_comes_first(harness: Harness) -> None:
    await harness.store.enqueue([new(delay=60.0) for _ in range(1500)])
    [first] = await enqueued(harness.store, delay=30.0)
    await harness.age(61)

    assert [job.ref for job in await leased(harness.store, 1)] == [first]


async def test_all_delayed_jobs_come_out_when_they_are_due(harness: Harness) -> None:
    await harness.store.enqueue([new(delay=60.0) for _ in range(2500)])
    await harness.age(61)

    taken = 0
    while jobs := await leased(harness.store, 500):
        taken += len(jobs)
    assert taken == 2500
