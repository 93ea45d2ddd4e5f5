"""settle: a lease ends once, by the one who holds it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from unstuck.protocol.job import Category, Lease, Status
from unstuck.protocol.leases import Recovery
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Outcome, Settled, completed, failed, released, retried
from unstuck.testing.conformance.given import (
    counts,
    enqueued,
    leased,
    look,
    new,
    now,
    one_leased,
    states,
    trouble,
)
from unstuck.testing.harnesses.harness import Harness


@pytest.mark.accepts("MQ-013", "MQ-043")
async def test_a_completed_job_is_recorded_and_not_delivered_again(harness: Harness) -> None:
    job = await one_leased(harness.store)

    assert await harness.store.settle([completed(job.lease, {"answer": 42})]) == [Settled.APPLIED]

    stored = await look(harness.store, job.ref)
    assert (stored.status, stored.result, stored.owner, stored.lease_until) == (
        Status.COMPLETED,
        {"answer": 42},
        None,
        None,
    )
    assert stored.finished_at is not None
    assert await leased(harness.store) == []


@pytest.mark.accepts("EMB-031", "EMB-032", "EMB-033")
async def test_a_failed_job_keeps_why_it_failed(harness: Harness) -> None:
    job = await one_leased(harness.store)
    why = trouble(Category.PERMANENT, stack="Traceback …", attempt=job.attempts, worker="w", details={"n": 1})

    await harness.store.settle([failed(job.lease, why)])

    error = (await look(harness.store, job.ref)).error
    assert error is not None
    assert (error.message, error.stack, error.attempt, error.worker) == (
        "it did not work",
        "Traceback …",
        1,
        "w",
    )
    assert error.details == {"n": 1}
    assert error.at is not None
    assert abs(error.at - now()) < timedelta(minutes=1)


@pytest.mark.accepts("EMB-030", "EMB-034")
async def test_failures_can_be_distinguished_by_category(harness: Harness) -> None:
    await enqueued(harness.store, 3)
    for job, category in zip(await leased(harness.store, 3), Category, strict=True):
        await harness.store.settle([failed(job.lease, trouble(category))])

    for category in Category:
        [job] = (await harness.store.find(Filter(category=category))).jobs
        assert job.error is not None
        assert job.error.category is category


@pytest.mark.accepts("MQ-022")
async def test_a_retried_job_waits_out_its_delay(harness: Harness) -> None:
    job = await one_leased(harness.store)

    await harness.store.settle([retried(job.lease, trouble(), 30.0)])

    stored = await look(harness.store, job.ref)
    assert (stored.status, stored.attempts, stored.owner) == (Status.PENDING, 1, None)
    assert abs((stored.run_at - now()).total_seconds() - 30.0) < 15.0
    assert await leased(harness.store) == []
    await harness.age(31)
    [again] = await leased(harness.store)
    assert (again.ref, again.attempts) == (job.ref, 2)


async def test_the_same_outcome_again_is_repeated_and_changes_nothing(harness: Harness) -> None:
    job = await one_leased(harness.store)
    outcome = completed(job.lease, "first")

    assert await harness.store.settle([outcome]) == [Settled.APPLIED]
    assert await (await harness.another()).settle([outcome]) == [Settled.REPEATED]
    assert (await counts(harness.store)).totals["completed"] == 1


BY_ENDING: dict[str, Callable[[Lease], Outcome]] = {
    "completed": completed,
    "retried": lambda lease: retried(lease, trouble(), 0.0),
    "failed": lambda lease: failed(lease, trouble()),
    "released": released,
}


async def test_repeated_or_lost(harness: Harness) -> None:
    """The whole table: an outcome is repeated if the last lease that ended is this one and ended in this way, else lost."""
    store = harness.store

    async def answers(lease: Lease) -> dict[str, Settled]:
        """What each outcome for a lease that is over is answered."""
        return dict(
            zip(BY_ENDING, await store.settle([end(lease) for end in BY_ENDING.values()]), strict=True)
        )

    lost = dict.fromkeys(BY_ENDING, Settled.LOST)
    for first, end in BY_ENDING.items():
        await enqueued(store, queue=first, max_attempts=10)
        [job] = await leased(store, queue=first)
        assert await store.settle([end(job.lease)]) == [Settled.APPLIED]
        repeated = lost | {first: Settled.REPEATED}
        assert await answers(job.lease) == repeated
        for other in (-1, 1):
            assert await answers(job.lease._replace(fence=job.fence + other)) == lost
        if (await look(store, job.ref)).finished_at is not None:
            await store.requeue(Filter(queue=first))
            assert await answers(job.lease) == repeated, "the job waits"
        [again] = await leased(store, queue=first)
        assert await answers(job.lease) == repeated, "the next lease is held"
        await store.settle([completed(again.lease)])
        assert await answers(job.lease) == lost, "the next lease ended, too"
        assert await answers(again.lease) == lost | {"completed": Settled.REPEATED}
        await store.delete(Filter(queue=first))
        assert await answers(again.lease) == lost, "there is no such job any more"

    taken = await one_leased(store, seconds=1.0)
    await harness.age(60)
    [reclaimed] = (await store.reclaim(Recovery("reaper", 30.0, 1, queues=["q"]))).jobs
    assert await answers(taken.lease) == lost, "a reaper took it over"
    assert await store.cancel([taken.ref]) == 1
    for held in (taken, reclaimed):
        assert await answers(held.lease) == lost, "it was cancelled"


@pytest.mark.parametrize("second", ["retried", "failed", "released"])
async def test_another_outcome_for_a_settled_lease_is_lost(harness: Harness, second: str) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([completed(job.lease, "kept")])
    others: dict[str, Outcome] = {
        "retried": retried(job.lease, trouble(), 0.0),
        "failed": failed(job.lease, trouble()),
        "released": released(job.lease),
    }

    assert await harness.store.settle([others[second]]) == [Settled.LOST]
    stored = await look(harness.store, job.ref)
    assert (stored.status, stored.result, stored.attempts) == (Status.COMPLETED, "kept", 1)


async def test_a_repeated_release_is_recognised_even_when_the_job_runs_again(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([released(job.lease)])
    [again] = await leased(harness.store, owner="other")

    assert await harness.store.settle([released(job.lease)]) == [Settled.REPEATED]
    assert (await look(harness.store, job.ref)).lease == again.lease


async def test_a_zombie_cannot_touch_its_successors_job(harness: Harness) -> None:
    old = await one_leased(harness.store, owner="same name")
    await harness.store.settle([released(old.lease)])
    [new_] = await leased(harness.store, owner="same name")

    answers = [
        (await harness.store.settle([outcome]))[0]
        for outcome in (
            completed(old.lease, "stale"),
            failed(old.lease, trouble()),
            retried(old.lease, trouble(), 0),
        )
    ]

    assert answers == [Settled.LOST] * 3
    stored = await look(harness.store, new_.ref)
    assert (stored.status, stored.lease, stored.result) == (Status.PROCESSING, new_.lease, None)
    assert await harness.store.settle([completed(new_.lease)]) == [Settled.APPLIED]


async def test_a_late_result_of_an_unreplaced_worker_counts(harness: Harness) -> None:
    job = await one_leased(harness.store, seconds=10.0)
    await harness.age(1000)

    assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]


async def test_any_mix_is_settled_in_one_step_and_answered_one_by_one(harness: Harness) -> None:
    await enqueued(harness.store, 4)
    a, b, c, d = await leased(harness.store, 4)

    answers = await harness.store.settle(
        [
            completed(a.lease),
            failed(b.lease, trouble()),
            retried(c.lease, trouble(), 60.0),
            released(d.lease),
            completed(Lease("q", "nobody", 1)),
            completed(a.lease),
        ]
    )

    assert answers == [*[Settled.APPLIED] * 4, Settled.LOST, Settled.REPEATED]
    assert await states(harness.store) == {"completed": 1, "failed": 1, "pending": 2}


async def test_nothing_to_settle_means_no_work(harness: Harness) -> None:
    assert await harness.store.settle([]) == []


async def test_follow_up_jobs_appear_with_the_outcome(harness: Harness) -> None:
    job = await one_leased(harness.store)
    next_stage = new("next", parent=job.id, payload={"file": 1})

    await harness.store.settle([completed(job.lease, then=(next_stage,))])

    [follow_up] = await leased(harness.store, queue="next")
    assert (follow_up.parent, follow_up.payload) == (job.id, {"file": 1})


async def test_a_refused_outcome_brings_no_follow_up(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([released(job.lease)])

    await harness.store.settle([completed(job.lease, then=(new("next"),))])

    assert await leased(harness.store, queue="next") == []


async def test_a_repeated_outcome_brings_its_follow_up_only_once(harness: Harness) -> None:
    job = await one_leased(harness.store)
    outcome = completed(job.lease, then=(new("next"),))

    await harness.store.settle([outcome])
    await harness.store.settle([outcome])

    assert await states(harness.store, "next") == {"pending": 1}


async def test_a_crash_is_counted_when_the_lease_is_settled(harness: Harness) -> None:
    job = await one_leased(harness.store)

    await harness.store.settle([retried(job.lease, trouble(), 0.0, crashed=True)])

    stored = await look(harness.store, job.ref)
    assert (stored.attempts, stored.crashes) == (1, 1)


async def test_what_went_wrong_stays_on_record_when_the_job_ended_well_or_was_put_back(
    harness: Harness,
) -> None:
    job = await one_leased(harness.store, key="k")
    await harness.store.settle([retried(job.lease, trouble(), 0.0)])
    [job] = await leased(harness.store)
    await harness.store.settle([completed(job.lease, "at last")])

    stored = await look(harness.store, job.ref)
    assert (stored.result, stored.error and stored.error.code) == ("at last", "trouble")
    await harness.store.requeue(Filter(ids=(job.id,)))
    stored = await look(harness.store, job.ref)
    assert (stored.result, stored.error and stored.error.code) == (None, "trouble")
    assert (stored.started_at, stored.finished_at) == (None, None)


async def test_totals_count_what_was_applied(harness: Harness) -> None:
    await enqueued(harness.store, 5)
    a, b, c, d, e = await leased(harness.store, 5)
    await harness.store.settle([completed(a.lease), completed(b.lease)])
    await harness.store.settle([failed(c.lease, trouble()), released(d.lease), completed(a.lease)])
    await harness.store.settle([completed(e.lease)])

    totals = (await counts(harness.store)).totals
    assert totals == {"completed": 3, "failed": 1, "released": 1}
