"""Outcome.pause: a queue is paused in the same step as the outcome that is the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from unstuck.model import Category, Job, Outcome, Settled, Status, completed, failed, released
from unstuck.store import Store
from unstuck.testing.conformance.given import counts, enqueued, leased, look, one_leased, trouble
from unstuck.testing.harness import Harness

WHY = "the disk is full"


def critical(job: Job) -> Outcome:
    return failed(job.lease, trouble(Category.CRITICAL), pause=WHY)


def exhausted(job: Job) -> Outcome:
    return released(job.lease, pause=WHY)


async def paused(store: Store) -> list[tuple[str, str | None, object]]:
    """Which pauses were told of: queue, job and details."""
    events = await store.events()
    return [(event.queue, event.job, event.data["details"]) for event in events if event.type == "paused"]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(critical, Status.FAILED), (exhausted, Status.PENDING)],
    ids=["failed", "released"],
)
async def test_an_outcome_may_pause_its_queue(
    harness: Harness, outcome: Callable[[Job], Outcome], status: Status
) -> None:
    await enqueued(harness.store, 2, queue="other")
    job = await one_leased(harness.store)
    await enqueued(harness.store, 3)

    assert await harness.store.settle([outcome(job)]) == [Settled.APPLIED]

    assert (await look(harness.store, job.ref)).status is status
    assert (await counts(harness.store)).paused == WHY
    assert (await counts(harness.store, "other")).paused is None
    assert await leased(await harness.another(), 10) == []
    assert len(await leased(harness.store, 10, queue="other")) == 2
    assert await paused(harness.store) == [("q", None, {"why": WHY})]


async def test_it_stays_so_until_it_is_resumed(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await enqueued(harness.store)
    await harness.store.settle([critical(job)])
    await harness.age(30 * 86400)
    assert await leased(harness.store) == []

    assert await harness.store.resume("q") is True

    assert len(await leased(harness.store)) == 1
    assert (await counts(harness.store)).paused is None


async def test_a_lost_outcome_pauses_nothing(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    await enqueued(harness.store)

    assert await harness.store.settle([critical(job), exhausted(job)]) == [Settled.LOST] * 2

    assert (await counts(harness.store)).paused is None
    assert await paused(harness.store) == []
    assert len(await leased(harness.store)) == 1


async def test_a_repeated_outcome_does_not_pause_what_was_resumed(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([critical(job)])
    await harness.store.resume("q")

    assert await harness.store.settle([critical(job)]) == [Settled.REPEATED]

    assert (await counts(harness.store)).paused is None
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


async def test_no_other_worker_slips_in_between(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await enqueued(harness.store, 1000)
    stores = [await harness.another() for _ in range(3)]
    told = asyncio.Event()

    async def work(store: Store) -> int:
        """How many jobs were leased by calls that began after the outcome was answered."""
        after = 0
        while True:
            late = told.is_set()
            jobs = await leased(store, 1)
            after += late * len(jobs)
            if late:
                return after

    workers = [asyncio.create_task(work(store)) for store in stores]
    await harness.store.settle([critical(job)])
    told.set()

    assert sum(await asyncio.gather(*workers)) == 0
