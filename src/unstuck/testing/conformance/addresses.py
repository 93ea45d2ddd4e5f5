"""A job's address is its queue and its id: the same id in another queue is another job."""

from __future__ import annotations

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Job, Ref
from unstuck.protocol.leases import Beat, Verdict
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Settled, completed, failed, released
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import leased, new, trouble
from unstuck.testing.harnesses.harness import Harness


async def namesakes(store: Store) -> list[Job]:
    """One running job in each of two queues, both with the same id."""
    await store.enqueue([new("a", id="same"), new("b", id="same")])
    return [*await leased(store, queue="a"), *await leased(store, queue="b")]


async def event_types(store: Store, ref: Ref) -> list[str]:
    return [event.type for event in await store.events(job=ref)]


async def test_what_happened_to_a_namesake_is_not_shown(harness: Harness) -> None:
    a, b = await namesakes(harness.store)
    await harness.store.settle([failed(a.lease, trouble()), released(b.lease)])

    assert await event_types(harness.store, a.ref) == ["failed", "alert"]
    assert await event_types(harness.store, b.ref) == ["released"]


async def test_a_deleted_job_leaves_the_events_of_its_namesake(harness: Harness) -> None:
    a, b = await namesakes(harness.store)
    await harness.store.settle([failed(a.lease, trouble()), failed(b.lease, trouble())])

    assert await harness.store.delete(Filter(queue="a")) == 1

    assert await event_types(harness.store, a.ref) == []
    assert await event_types(harness.store, b.ref) == ["failed", "alert"]


async def test_a_namesakes_end_is_not_taken_for_ones_own(harness: Harness) -> None:
    a, b = await namesakes(harness.store)
    outcomes = [completed(a.lease), failed(b.lease, trouble())]

    assert await harness.store.settle(outcomes) == [Settled.APPLIED] * 2
    assert await harness.store.settle(outcomes) == [Settled.REPEATED] * 2


async def test_a_namesakes_cancellation_is_not_taken_for_ones_own(harness: Harness) -> None:
    a, b = await namesakes(harness.store)
    await harness.store.cancel([a.ref])
    await harness.store.settle([completed(b.lease)])

    pulse = await harness.store.heartbeat(WorkerInfo(id="w"), [Beat(a.lease, 60.0), Beat(b.lease, 60.0)])

    assert pulse.verdicts == {a.lease: Verdict.CANCELLED, b.lease: Verdict.LOST}


async def test_the_content_of_a_namesake_is_not_compared(harness: Harness) -> None:
    await harness.store.enqueue(
        [new("a", id="same", key="k", payload=1), new("b", id="same", key="k", payload=2)]
    )

    answers = await harness.store.enqueue([new(queue, id="same", key="k", payload=2) for queue in ("a", "b")])

    assert [(answer.created, answer.same) for answer in answers] == [(False, False), (False, True)]
