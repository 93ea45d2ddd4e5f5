"""What becomes of finished jobs: they are put back, or deleted with their events."""

from __future__ import annotations

import pytest

from unstuck.operations.jobs import Jobs
from unstuck.protocol.job import Status
from unstuck.protocol.leases import Recovery
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Settled, completed, failed
from unstuck.testing.conformance.given import (
    counts,
    enqueued,
    leased,
    look,
    new,
    one_leased,
    one_of_each,
    states,
    trouble,
)
from unstuck.testing.harnesses.harness import Harness


@pytest.mark.accepts("EMB-149", "EMB-160")
async def test_failed_jobs_can_be_put_back_with_fresh_attempts(harness: Harness) -> None:
    job = await one_leased(harness.store, max_attempts=1)
    await harness.store.settle([failed(job.lease, trouble(), crashed=True)])
    done = await one_leased(harness.store)
    await harness.store.settle([completed(done.lease)])

    assert await Jobs(harness.store).retry_failed_jobs() == 1

    stored = await look(harness.store, job.ref)
    assert (stored.status, stored.attempts, stored.crashes) == (Status.PENDING, 0, 0)
    assert (await look(harness.store, done.ref)).status is Status.COMPLETED
    [again] = await leased(harness.store)
    assert again.fence > job.fence


async def test_requeue_touches_finished_jobs_only(harness: Harness) -> None:
    await one_of_each(harness.store)

    assert await harness.store.requeue(Filter()) == 2
    assert await states(harness.store) == {"pending": 3, "processing": 1}


async def test_those_that_ended_first_are_put_back_first(harness: Harness) -> None:
    await enqueued(harness.store, 2)
    first, second = await leased(harness.store, 2)
    await harness.store.settle([completed(second.lease)])
    await harness.age(1)
    await harness.store.settle([completed(first.lease)])

    assert await harness.store.requeue(Filter(), limit=1) == 1
    assert (await look(harness.store, second.ref)).status is Status.PENDING
    assert (await look(harness.store, first.ref)).status is Status.COMPLETED


async def test_delete_touches_finished_jobs_only(harness: Harness) -> None:
    await one_of_each(harness.store)

    assert await harness.store.delete(Filter()) == 2
    assert await states(harness.store) == {"pending": 1, "processing": 1}


@pytest.mark.accepts("EMB-024", "EMB-025", "EMB-037")
async def test_cleanup_deletes_what_finished_before_the_retention_period(harness: Harness) -> None:
    await one_of_each(harness.store)
    await harness.age(13.9 * 86400)
    assert await Jobs(harness.store).cleanup_jobs() == 0

    await harness.age(0.2 * 86400)
    assert await Jobs(harness.store).cleanup_jobs() == 2
    assert await states(harness.store) == {"pending": 1, "processing": 1}


@pytest.mark.accepts("EMB-026", "EMB-027")
async def test_cleanup_never_touches_unfinished_jobs_of_any_age(harness: Harness) -> None:
    ids = await one_of_each(harness.store)
    await harness.age(10_000 * 86400)

    await Jobs(harness.store).cleanup_jobs(days=0)

    left = {job.id for job in (await harness.store.find(Filter())).jobs}
    assert left == {ids[Status.PENDING], ids[Status.PROCESSING]}


@pytest.mark.accepts("EMB-159")
async def test_cleanup_by_an_age_of_seven_days_keeps_the_queue_from_growing(harness: Harness) -> None:
    for _ in range(5):
        job = await one_leased(harness.store)
        await harness.store.settle([completed(job.lease)])
        await harness.age(3.6 * 86400)
        await Jobs(harness.store).cleanup_jobs(days=604_800_000 / 86_400_000)

    assert (await counts(harness.store)).completed == 1


@pytest.mark.accepts("EMB-156")
async def test_failed_jobs_are_kept_until_they_are_cleaned_up(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([failed(job.lease, trouble())])
    await harness.age(13 * 86400)
    await Jobs(harness.store).cleanup_jobs(days=14)

    stored = await look(harness.store, job.ref)
    assert stored.error is not None
    assert stored.error.message == "it did not work"
    assert await Jobs(harness.store).retry_failed_jobs() == 1
    [again] = await leased(harness.store)
    assert again.ref == job.ref
    await harness.store.settle([failed(again.lease, trouble())])
    await harness.age(14.1 * 86400)
    assert await Jobs(harness.store).cleanup_jobs(days=14) == 1


async def test_events_die_with_their_job(harness: Harness) -> None:
    gone = await one_leased(harness.store)
    kept = await one_leased(harness.store)
    await harness.store.settle([failed(gone.lease, trouble()), failed(kept.lease, trouble())])

    assert await harness.store.delete(Filter(ids=(gone.id,))) == 1

    assert await harness.store.events(job=gone.ref) == []
    assert [event.type for event in await harness.store.events(job=kept.ref)] == ["failed", "alert"]


async def test_a_deleted_key_is_free_again(harness: Harness) -> None:
    job = await one_leased(harness.store, key="k")
    await harness.store.settle([completed(job.lease)])
    await harness.store.delete(Filter(key="k"))

    [answer] = await harness.store.enqueue([new(key="k")])
    assert answer.created


async def test_a_lease_of_a_deleted_job_is_none_of_its_namesake(harness: Harness) -> None:
    """Fences begin with the clock: a worker that slept through the whole life of its job cannot end the next one."""
    lost = await one_leased(harness.store, key="k")
    await harness.age(61)
    [taken] = (await harness.store.reclaim(Recovery("reaper", 30.0, 1))).jobs
    await harness.store.settle([failed(taken.lease, trouble())])
    await harness.store.delete(Filter())
    again = await one_leased(harness.store, key="k", owner="next")

    assert again.ref == lost.ref
    assert await harness.store.settle([completed(lost.lease)]) == [Settled.LOST]
    assert (await look(harness.store, again.ref)).lease == again.lease


async def test_many_jobs_are_handled_in_bounded_steps(harness: Harness) -> None:
    await enqueued(harness.store, 30)
    jobs = await leased(harness.store, 30)
    await harness.store.settle([completed(job.lease) for job in jobs[:15]])
    await harness.store.settle([failed(job.lease, trouble()) for job in jobs[15:]])

    assert await harness.store.delete(Filter(), 20) == 20
    assert await harness.store.requeue(Filter(), 4) == 4
    of = await states(harness.store)
    assert (of.pop("pending"), sum(of.values())) == (4, 6)
