"""What operators do to queues and jobs that are not finished: cancel, pause, count."""

from __future__ import annotations

from unstuck.operations.jobs import Jobs
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Status
from unstuck.protocol.leases import Beat, Verdict
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed, released, retried
from unstuck.testing.conformance.given import counts, enqueued, leased, look, one_leased, states, trouble
from unstuck.testing.harnesses.harness import Harness


async def test_a_cancelled_job_is_failed_but_no_dead_letter(harness: Harness) -> None:
    [waiting] = await enqueued(harness.store)

    assert await harness.store.cancel([waiting]) == 1

    stored = await look(harness.store, waiting)
    assert stored.status is Status.FAILED
    assert stored.cancelled
    assert not stored.dead
    assert stored.error is not None
    assert stored.error.code == "cancelled"
    assert (await harness.store.find(Filter(dead=True))).jobs == []
    assert await Jobs(harness.store).retry_failed_jobs() == 0
    assert (await counts(harness.store)).cancelled == 1
    assert await leased(harness.store) == []


async def test_cancelling_a_running_job_takes_its_lease(harness: Harness) -> None:
    job = await one_leased(harness.store)

    assert await harness.store.cancel([job.ref]) == 1

    answer = await harness.store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, 60.0)])
    assert answer.verdicts == {job.lease: Verdict.CANCELLED}
    assert [str(one) for one in await harness.store.settle([completed(job.lease, "late")])] == ["lost"]
    stored = await look(harness.store, job.ref)
    assert (stored.status, stored.result, stored.owner) == (Status.FAILED, None, None)
    assert stored.settled_fence == stored.fence > job.fence
    assert await states(harness.store) == {"failed": 1}


async def test_cancelling_what_is_finished_or_unknown_does_nothing(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([completed(job.lease)])

    assert await harness.store.cancel([job.ref, job.ref._replace(id="unknown")]) == 0
    assert await harness.store.cancel([]) == 0
    assert (await look(harness.store, job.ref)).status is Status.COMPLETED


async def test_a_paused_queue_is_not_leased_until_it_is_resumed(harness: Harness) -> None:
    await enqueued(harness.store, 2)
    await enqueued(harness.store, 1, queue="other")
    await harness.store.pause("q", "the provider is down")

    assert await leased(await harness.another(), 5) == []
    assert len(await leased(harness.store, 5, queue="other")) == 1
    assert (await counts(harness.store)).paused == "the provider is down"

    assert await harness.store.pause("q", None) is True
    assert await harness.store.pause("q", None) is False
    assert len(await leased(harness.store, 5)) == 2


async def test_a_second_pause_takes_the_new_reason(harness: Harness) -> None:
    job = await one_leased(harness.store)
    for why in ("first", "second"):
        await harness.store.pause("q", why)
        assert (await counts(harness.store)).paused == why

    await harness.store.settle([released(job.lease, pause="third")])

    assert (await counts(harness.store)).paused == "third"
    assert [event.data["details"] for event in await harness.store.events() if event.type == "paused"] == [
        {"why": why} for why in ("first", "second", "third")
    ]


async def test_a_pause_whose_reason_begins_with_critical_is_just_a_pause(harness: Harness) -> None:
    await harness.store.pause("q", "CRITICAL fix is being deployed")

    of = await counts(harness.store)
    assert of.paused == "CRITICAL fix is being deployed"
    assert not of.halted
    assert (await Jobs(harness.store).get_health_status()).status != "CRITICAL"


async def test_a_queue_that_was_resumed_can_be_paused_again_for_another_reason(harness: Harness) -> None:
    await enqueued(harness.store)
    await harness.store.pause("q", "the provider is down")
    await harness.store.pause("q", None)
    assert (await counts(harness.store)).paused is None

    await harness.store.pause("q", "no money")
    await harness.store.pause("q", "no time")

    assert await leased(harness.store) == []
    assert (await counts(harness.store)).paused == "no time"


async def test_an_empty_queue_is_listed_while_it_is_paused(harness: Harness) -> None:
    await harness.store.pause("q", "for a while")
    assert [of.queue for of in await harness.store.count()] == ["q"]

    await harness.store.pause("q", None)
    assert await harness.store.count() == []


async def test_a_pause_does_not_touch_what_runs(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.pause("q", "for a while")

    assert [str(one) for one in await harness.store.settle([retried(job.lease, trouble(), 0.0)])] == [
        "applied"
    ]
    assert await leased(harness.store) == []


async def test_counts_separate_delayed_expired_and_recovered(harness: Harness) -> None:
    await enqueued(harness.store, 1, delay=3600.0)
    job = await one_leased(harness.store, seconds=10.0)
    assert (await counts(harness.store)).expired == 0
    await one_leased(harness.store, seconds=600.0)
    await harness.age(60)

    of = await counts(harness.store)
    assert (of.pending, of.delayed, of.processing, of.expired) == (1, 1, 2, 1)
    await harness.store.settle([released(job.lease)])
    of = await counts(harness.store)
    assert (of.pending, of.delayed, of.processing, of.expired) == (2, 1, 1, 0)


async def test_migrate_may_be_repeated(harness: Harness) -> None:
    await enqueued(harness.store)
    await harness.store.migrate()
    await (await harness.another()).migrate()

    assert await states(harness.store) == {"pending": 1}


async def test_the_clock_is_the_stores(harness: Harness) -> None:
    first = await harness.store.clock()
    second = await harness.store.clock()

    assert first.now <= second.now
    assert first.now.tzinfo is not None
    assert second.uptime > 0
