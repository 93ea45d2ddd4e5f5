"""Outcome.pause and Outcome.halt: a queue is paused or halted in the same step as the outcome that is the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from unstuck.protocol.job import Category, Job, Status
from unstuck.protocol.outcome import Outcome, Settled, completed, failed, released
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import (
    QUEUE,
    counts,
    enqueued,
    leased,
    look,
    one_leased,
    trouble,
)
from unstuck.testing.harnesses.harness import Harness

WHY = "the disk is full"


def critical(job: Job) -> Outcome:
    return failed(job.lease, trouble(Category.CRITICAL), halt=WHY)


def exhausted(job: Job) -> Outcome:
    return released(job.lease, pause=WHY)


async def paused(store: Store) -> list[tuple[str, str | None, object]]:
    """Which pauses were logged: queue, job and details."""
    events = await store.events()
    return [(event.queue, event.job, event.data["details"]) for event in events if event.type == "paused"]


async def stopped(store: Store, queue: str = QUEUE) -> tuple[str | None, str | None]:
    of = await counts(store, queue)
    return of.paused, of.halted


@pytest.mark.parametrize(
    ("outcome", "status", "why"),
    [(critical, Status.FAILED, (None, WHY)), (exhausted, Status.PENDING, (WHY, None))],
    ids=["halted", "paused"],
)
async def test_an_outcome_may_pause_its_queue(
    harness: Harness, outcome: Callable[[Job], Outcome], status: Status, why: tuple[str | None, str | None]
) -> None:
    await enqueued(harness.store, 2, queue="other")
    job = await one_leased(harness.store)
    await enqueued(harness.store, 3)

    assert await harness.store.settle([outcome(job)]) == [Settled.APPLIED]

    assert (await look(harness.store, job.ref)).status is status
    assert await stopped(harness.store) == why
    assert await stopped(harness.store, "other") == (None, None)
    assert await leased(await harness.another(), 10) == []
    assert len(await leased(harness.store, 10, queue="other")) == 2
    assert await paused(harness.store) == [("q", None, {"why": WHY})]


async def test_it_stays_so_until_it_is_resumed(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await enqueued(harness.store)
    await harness.store.settle([critical(job)])
    await harness.age(30 * 86400)
    assert await leased(harness.store) == []

    assert await harness.store.pause("q", None) is True

    assert len(await leased(harness.store)) == 1
    assert await stopped(harness.store) == (None, None)


async def test_a_lost_outcome_pauses_nothing(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    await enqueued(harness.store)

    assert await harness.store.settle([critical(job), exhausted(job)]) == [Settled.LOST] * 2

    assert await stopped(harness.store) == (None, None)
    assert await paused(harness.store) == []
    assert len(await leased(harness.store)) == 1


async def test_a_repeated_outcome_does_not_pause_what_was_resumed(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([critical(job)])
    await harness.store.pause("q", None)

    assert await harness.store.settle([critical(job)]) == [Settled.REPEATED]

    assert await stopped(harness.store) == (None, None)
    assert len(await paused(harness.store)) == 1


async def test_one_of_a_batch_is_enough(harness: Harness) -> None:
    await enqueued(harness.store, 3)
    done, broken, lost = await leased(harness.store, 3)
    await harness.store.settle([completed(lost.lease)])
    await enqueued(harness.store)

    answers = await harness.store.settle([completed(done.lease), critical(broken), exhausted(lost)])

    assert answers == [Settled.APPLIED, Settled.APPLIED, Settled.LOST]
    assert await leased(harness.store) == []
    assert await paused(harness.store) == [("q", None, {"why": WHY})]


async def test_each_queue_of_a_batch_is_paused_for_its_own_reason(harness: Harness) -> None:
    await enqueued(harness.store, queue="a")
    await enqueued(harness.store, queue="b")
    [one] = await leased(harness.store, queue="a")
    [two] = await leased(harness.store, queue="b")

    await harness.store.settle([released(one.lease, pause="no money"), released(two.lease, pause="no air")])

    assert (await counts(harness.store, "a")).paused == "no money"
    assert (await counts(harness.store, "b")).paused == "no air"


@pytest.mark.parametrize("first", ["halted", "paused"])
async def test_a_halt_and_a_pause_stand_side_by_side(harness: Harness, first: str) -> None:
    job = await one_leased(harness.store)
    await enqueued(harness.store)
    if first == "halted":
        await harness.store.settle([critical(job)])
        await harness.store.pause("q", "for a while")
    else:
        await harness.store.pause("q", "for a while")
        await harness.store.settle([critical(job)])

    assert await stopped(harness.store) == ("for a while", WHY)
    assert await leased(harness.store) == []

    assert await harness.store.pause("q", None) is True
    assert await stopped(harness.store) == (None, None)
    assert await harness.store.pause("q", None) is False
    assert len(await leased(harness.store)) == 1


@pytest.mark.parametrize("again", [WHY, "the disk is gone"], ids=["same", "other"])
async def test_a_second_halt_takes_the_new_reason_and_leaves_the_pause_alone(
    harness: Harness, again: str
) -> None:
    await enqueued(harness.store, 3)
    first, second, third = await leased(harness.store, 3)
    await harness.store.settle([critical(first)])

    await harness.store.settle([failed(second.lease, trouble(Category.CRITICAL), halt=again)])
    assert await stopped(harness.store) == (None, again)

    await harness.store.pause("q", "for a while")
    await harness.store.settle([failed(third.lease, trouble(Category.CRITICAL), halt="and again")])
    assert await stopped(harness.store) == ("for a while", "and again")


async def test_a_queue_that_was_resumed_can_be_halted_or_paused_again_by_itself(harness: Harness) -> None:
    await enqueued(harness.store, 2)
    first, second = await leased(harness.store, 2)
    await harness.store.settle([critical(first)])
    await harness.store.pause("q", None)

    await harness.store.pause("q", "for a while")
    assert await stopped(harness.store) == ("for a while", None)

    await harness.store.pause("q", None)
    await harness.store.settle([critical(second)])
    assert await stopped(harness.store) == (None, WHY)


async def test_one_call_may_both_pause_and_halt_a_queue(harness: Harness) -> None:
    await enqueued(harness.store, 2)
    one, other = await leased(harness.store, 2)

    await harness.store.settle([critical(one), released(other.lease, pause="no money")])

    assert await stopped(harness.store) == ("no money", WHY)
    assert sorted(await paused(harness.store), key=str) == [
        ("q", None, {"why": why}) for why in ("no money", WHY)
    ]


async def test_who_sees_the_failed_job_is_given_no_other(harness: Harness) -> None:
    """The halt is there in the moment in which the job has failed."""
    job = await one_leased(harness.store)
    await enqueued(harness.store, 1000)
    stores = [await harness.another() for _ in range(3)]

    async def work(store: Store) -> None:
        while True:
            ended = (await look(store, job.ref)).status is Status.FAILED
            jobs = await leased(store, 1)
            if ended:
                assert jobs == []
                return

    workers = [asyncio.create_task(work(store)) for store in stores]
    await harness.store.settle([critical(job)])

    await asyncio.gather(*workers)


async def test_no_other_worker_slips_in_between(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await enqueued(harness.store, 1000)
    stores = [await harness.another() for _ in range(3)]
    done = asyncio.Event()

    async def work(store: Store) -> int:
        """How many jobs were leased by calls that began after the outcome was answered."""
        after = 0
        while True:
            late = done.is_set()
            jobs = await leased(store, 1)
            after += late * len(jobs)
            if late:
                return after

    workers = [asyncio.create_task(work(store)) for store in stores]
    await harness.store.settle([critical(job)])
    done.set()

    assert sum(await asyncio.gather(*workers)) == 0
