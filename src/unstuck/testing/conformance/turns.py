"""Turns: how much of a lease each of several queues gets, and that queues without jobs change nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from datetime import timedelta

import pytest

from unstuck.protocol.job import Job
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import completed, retried
from unstuck.stores.shared.heads import FEW
from unstuck.testing.conformance.given import enqueued, leased, new, now, states, trouble
from unstuck.testing.conformance.reference import turns
from unstuck.testing.harnesses.harness import Harness

UNUSED = [f"idle-{number}" for number in range(3 * FEW)]


def by_queue(jobs: list[Job]) -> dict[str, int]:
    return dict(Counter(job.queue for job in jobs))


async def test_without_turns_all_queues_are_one_line(harness: Harness) -> None:
    await enqueued(harness.store, 8, queue="bulk", run_at=now() - timedelta(hours=1))
    await enqueued(harness.store, 8, queue="urgent")

    jobs = await harness.store.lease({"urgent": Share(60.0, 8), "bulk": Share(60.0, 8)}, 8, "w")

    assert by_queue(jobs) == {"bulk": 8}


async def test_with_the_same_step_queues_take_turns_however_long_one_is(harness: Harness) -> None:
    await enqueued(harness.store, 40, queue="bulk", run_at=now() - timedelta(hours=1))
    await enqueued(harness.store, 8, queue="urgent")
    shares = {name: Share(60.0, 20, step=1.0) for name in ("bulk", "urgent")}

    assert by_queue(await harness.store.lease(shares, 10, "w")) == {"bulk": 5, "urgent": 5}
    assert by_queue(await harness.store.lease(shares, 10, "w")) == {"bulk": 7, "urgent": 3}


async def test_a_shorter_step_is_a_greater_weight(harness: Harness) -> None:
    await enqueued(harness.store, 40, queue="bulk", run_at=now() - timedelta(hours=1))
    await enqueued(harness.store, 40, queue="urgent")

    jobs = await harness.store.lease(
        {"bulk": Share(60.0, 30, step=1.0), "urgent": Share(60.0, 30, step=0.2)}, 12, "w"
    )

    assert by_queue(jobs) == {"bulk": 2, "urgent": 10}


async def test_without_a_step_the_lower_turn_goes_first_until_it_is_empty(harness: Harness) -> None:
    await enqueued(harness.store, 10, queue="c", run_at=now() - timedelta(hours=2))
    await enqueued(harness.store, 4, queue="b", run_at=now() - timedelta(hours=1))
    await enqueued(harness.store, 3, queue="a")
    shares = {name: Share(60.0, 9, turn=float(turn)) for turn, name in enumerate("abc")}

    assert by_queue(await harness.store.lease(shares, 2, "w")) == {"a": 2}
    assert by_queue(await harness.store.lease(shares, 9, "w")) == {"a": 1, "b": 4, "c": 4}


async def test_a_queue_that_was_served_more_waits_for_the_others(harness: Harness) -> None:
    await enqueued(harness.store, 10, queue="ahead", run_at=now() - timedelta(hours=1))
    await enqueued(harness.store, 10, queue="behind")
    shares = {"ahead": Share(60.0, 9, turn=2.5, step=1.0), "behind": Share(60.0, 9, step=1.0)}

    assert by_queue(await harness.store.lease(shares, 3, "w")) == {"behind": 3}
    assert by_queue(await harness.store.lease(shares, 5, "w")) == {"behind": 4, "ahead": 1}


@pytest.mark.parametrize("seed", range(8))
async def test_any_turns_and_steps_bring_what_the_reference_model_takes(harness: Harness, seed: int) -> None:
    draw = random.Random(seed)
    names = ["a", "b", "c", "d"][: draw.randint(2, 4)]
    places = draw.sample(range(100), 30)  # each job has a rank of its own
    line: dict[str, list[float]] = {name: [] for name in names}
    for place in places:
        line[draw.choice(names)].append(float(place))
    noon = now() - timedelta(hours=5)
    sent = [(name, place) for name, some in line.items() for place in some]
    await harness.store.enqueue(
        [new(name, run_at=noon + timedelta(minutes=place), payload=place) for name, place in sent]
    )
    limit = draw.randint(1, 20)
    shares = {
        name: Share(
            60.0,
            draw.randint(1, limit),
            turn=draw.choice([0.0, 0.0, 1.0, 2.5]),
            step=draw.choice([0.0, 0.2, 1.0]),
        )
        for name in names
    }

    jobs = await harness.store.lease(shares, limit, "w")

    assert sorted((job.queue, job.payload) for job in jobs) == sorted(turns(line, shares, limit))


async def test_what_limits_leave_of_a_queue_goes_to_the_others(harness: Harness) -> None:
    await enqueued(harness.store, 20, queue="few", run_at=now() - timedelta(hours=1))
    await enqueued(harness.store, 20, queue="many")
    shares = {"few": Share(60.0, 10, at_a_time=2, step=1.0), "many": Share(60.0, 10, step=1.0)}

    jobs = await harness.store.lease(shares, 10, "w")
    assert by_queue(jobs) == {"few": 2, "many": 8}
    assert by_queue(await harness.store.lease(shares, 10, "w")) == {"many": 10}
    await harness.store.settle([completed(job.lease) for job in jobs if job.queue == "few"])
    assert by_queue(await harness.store.lease(shares, 4, "w")) == {"few": 2, "many": 2}


async def test_lanes_take_turns_within_the_turns_of_their_queue(harness: Harness) -> None:
    early = now() - timedelta(hours=1)
    await enqueued(harness.store, 20, queue="laned", lane="big", run_at=early)
    await enqueued(harness.store, 3, queue="laned", lane="small")
    await enqueued(harness.store, 20, queue="plain", run_at=early)
    shares = {"laned": Share(60.0, 12, per_lane=5, step=0.5), "plain": Share(60.0, 12, step=1.0)}

    jobs = await harness.store.lease(shares, 9, "w")

    assert by_queue(jobs) == {"laned": 6, "plain": 3}
    assert Counter(job.lane for job in jobs) == {"big": 3, "small": 3, None: 3}


@pytest.mark.slow
async def test_an_answer_that_cannot_carry_all_of_them_is_shared_by_turns(harness: Harness) -> None:
    early = now() - timedelta(hours=1)
    for _ in range(4):
        await enqueued(harness.store, 3, queue="bulk", payload="x" * 1_000_000, run_at=early)
        await enqueued(harness.store, 3, queue="urgent", payload="x" * 1_000_000)
    shares = {name: Share(60.0, 12, step=1.0) for name in ("bulk", "urgent")}

    found = by_queue(await harness.store.lease(shares, 24, "w"))

    assert found["bulk"] - found.get("urgent", 0) in (0, 1)


async def test_new_jobs_only_take_turns_as_well(harness: Harness) -> None:
    await enqueued(harness.store, 12, queue="a", max_attempts=9, run_at=now() - timedelta(hours=1))
    old = await leased(harness.store, 3, queue="a")
    await harness.store.settle([retried(job.lease, trouble(), 0.0) for job in old])
    await enqueued(harness.store, 12, queue="b")
    shares = {name: Share(60.0, 9, only_new=True, step=1.0) for name in "ab"}

    jobs = await harness.store.lease(shares, 8, "w")

    assert by_queue(jobs) == {"a": 4, "b": 4}
    assert not {job.ref for job in jobs} & {job.ref for job in old}


async def test_of_many_queues_those_that_have_jobs_are_found(harness: Harness) -> None:
    store = harness.store
    await enqueued(store, 2, queue="a-ready")
    await enqueued(store, 2, queue="late", delay=30.0)
    await enqueued(store, 2, queue="later", delay=3600.0)
    await enqueued(store, 2, queue="z-paused")
    await store.pause("z-paused", "for a while")
    await enqueued(store, 2, queue="not-asked-for")
    names = [*UNUSED, "z-paused", "later", "late", "a-ready"]
    shares = {name: Share(60.0, 10, step=1.0) for name in names}
    await harness.age(31)

    assert by_queue(await store.lease(shares, 10, "w")) == {"a-ready": 2, "late": 2}
    assert await store.lease(shares, 10, "w") == []
    await store.pause("z-paused", None)
    assert by_queue(await store.lease(shares, 10, "w")) == {"z-paused": 2}
    assert await states(store, "not-asked-for") == {"pending": 2}


@pytest.mark.parametrize("delay", [0.0, 30.0])
async def test_queues_are_found_among_more_that_have_jobs_than_were_asked_for(
    harness: Harness, delay: float
) -> None:
    others = [f"other-{number}" for number in range(2 * FEW)]
    asked = [f"mine-{number}" for number in range(FEW + 1)]
    await harness.store.enqueue([new(name, delay=delay) for name in (*others, *asked[-3:])])
    await harness.age(31)

    jobs = await harness.store.lease({name: Share(60.0, 9) for name in asked}, 9, "w")

    assert by_queue(jobs) == dict.fromkeys(asked[-3:], 1)


async def test_of_many_queues_each_keeps_its_limits_and_its_lease(harness: Harness) -> None:
    await enqueued(harness.store, 5, queue="few")
    await enqueued(harness.store, 5, queue="laned", lane="x")
    shares = dict.fromkeys(UNUSED, Share(60.0, 10))
    shares |= {"few": Share(600.0, 10, at_a_time=2), "laned": Share(60.0, 10, per_lane=1)}

    jobs = await harness.store.lease(shares, 10, "w")

    assert by_queue(jobs) == {"few": 2, "laned": 1}
    lengths = {
        job.queue: job.lease_until - job.heartbeat_at for job in jobs if job.lease_until and job.heartbeat_at
    }
    assert lengths == {"few": timedelta(seconds=600), "laned": timedelta(seconds=60)}
    assert await harness.store.lease(shares, 10, "w") == []


async def test_a_wait_for_many_queues_ends_with_a_job_that_comes_or_becomes_due(harness: Harness) -> None:
    names = [*UNUSED, "q"]
    waiting = asyncio.create_task(harness.store.wait(names, 60.0))
    await asyncio.sleep(0.3)
    await enqueued(await harness.another())
    await asyncio.wait_for(waiting, 20.0)
    assert len(await leased(harness.store, 1)) == 1

    await enqueued(harness.store, delay=0.5)
    await asyncio.wait_for(harness.store.wait(names, 60.0), 20.0)


async def test_a_wait_for_many_queues_is_not_ended_by_others_or_by_a_pause(harness: Harness) -> None:
    await harness.store.pause("q", "for a while")
    await enqueued(harness.store)
    await enqueued(harness.store, queue="not-asked-for")

    began = time.monotonic()
    await harness.store.wait([*UNUSED, "q"], 0.3)
    assert time.monotonic() - began > 0.25
