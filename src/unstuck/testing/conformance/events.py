"""Events are written with the change they report."""

from __future__ import annotations

from datetime import datetime

import pytest

from unstuck.protocol.job import Ref
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed, failed, released, retried
from unstuck.protocol.store import Store
from unstuck.stores import open_store
from unstuck.testing.conformance.given import enqueued, leased, one_leased, trouble
from unstuck.testing.harnesses.harness import Harness


async def types(store: Store, ref: Ref) -> list[str]:
    return [event.type for event in await store.events(job=ref)]


async def test_exceptional_changes_always_leave_an_event(harness: Harness) -> None:
    job = await one_leased(harness.store, max_attempts=9)
    await harness.store.settle([released(job.lease, why="no token")])
    [job] = await leased(harness.store)
    await harness.store.settle([retried(job.lease, trouble(), 0.0)])
    [job] = await leased(harness.store)
    await harness.store.settle([failed(job.lease, trouble())])
    await harness.store.requeue(Filter(ids=(job.id,)))
    await harness.store.cancel([job.ref])

    found = [
        event for event in await harness.store.events(job=job.ref) if event.type not in ("enqueued", "leased")
    ]
    types_ = ["released", "retried", "failed", "alert", "requeued", "cancelled"]
    assert [event.type for event in found] == types_
    assert found[0].data["details"]["why"] == "no token"
    assert found[1].data["details"]["message"] == "it did not work"


@pytest.mark.accepts("MQ-026")
async def test_a_dead_letter_raises_an_alert_in_the_same_step_and_a_retry_none(harness: Harness) -> None:
    job = await one_leased(harness.store, max_attempts=2)
    await harness.store.settle([retried(job.lease, trouble(), 0.0)])
    assert "alert" not in await types(harness.store, job.ref)

    [job] = await leased(harness.store)
    await harness.store.settle([failed(job.lease, trouble())])

    found = [event for event in await harness.store.events(job=job.ref) if event.type == "alert"]
    assert [event.data["details"]["alert"] for event in found] == ["dead_letter"]
    assert found[0].data["details"]["message"] == "it did not work"


async def test_an_event_reports_what_the_failure_knows_except_its_stack(harness: Harness) -> None:
    job = await one_leased(harness.store)
    why = trouble(
        attempt=1, worker="w", reason="cause", stack="Traceback …", details={"exception": "my.Error"}
    )
    await harness.store.settle([failed(job.lease, why)])

    known = {"fence": job.fence, "category": "TRANSIENT", "code": "trouble", "reason": "cause", "attempt": 1}
    known |= {"message": "it did not work", "worker": "w", "exception": "my.Error"}
    found = {event.type: event.data["details"] for event in await harness.store.events(job=job.ref)}
    assert found == {"failed": known, "alert": known | {"alert": "dead_letter"}}


async def test_an_outcome_that_was_refused_leaves_no_event(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([failed(job.lease, trouble())])
    await harness.store.settle([failed(job.lease, trouble()), released(job.lease)])

    assert (await types(harness.store, job.ref)).count("failed") == 1
    assert "released" not in await types(harness.store, job.ref)


async def test_pauses_are_events_of_the_queue(harness: Harness) -> None:
    await harness.store.pause("q", "why not")
    await harness.store.pause("q", None)

    events = await harness.store.events()
    assert [(event.type, event.queue, event.job) for event in events] == [
        ("paused", "q", None),
        ("resumed", "q", None),
    ]
    assert events[0].data["details"] == {"why": "why not"}


async def test_events_can_be_followed_behind_a_cursor(harness: Harness) -> None:
    job = await one_leased(harness.store, max_attempts=9)
    for _ in range(5):
        await harness.store.settle([retried(job.lease, trouble(), 0.0)])
        [job] = await leased(harness.store)

    first = await harness.store.events(limit=2)
    rest = await harness.store.events(after=first[-1].cursor)

    assert len(first) == 2
    cursors = [event.cursor for event in first + rest]
    assert len(set(cursors)) == len(cursors) >= 5
    assert [event.at for event in first + rest] == sorted(event.at for event in first + rest)


async def test_a_plain_life_needs_no_events(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([completed(job.lease)])

    assert await types(harness.store, job.ref) == []


async def test_routine_events_are_written_if_the_url_asks_for_them(harness: Harness) -> None:
    url = f"{harness.url}{'&' if '?' in harness.url else '?'}events=all"
    async with open_store(url) as store, store.twin() as twin:
        [ref] = await enqueued(store)
        [job] = await leased(twin)
        await store.settle([completed(job.lease)])

        found = await harness.store.events(job=ref)

    assert [event.type for event in found] == ["enqueued", "leased", "completed"]
    assert found[1].data["details"] == {"fence": job.fence, "owner": "w"}


async def test_what_was_edited_is_reported(harness: Harness) -> None:
    refs = await enqueued(harness.store, 2)
    when = (await harness.store.clock()).now.replace(microsecond=0)

    await harness.store.edit(refs[:1], priority=7)
    await harness.store.edit(refs[1:], run_at=when)

    [first], [second] = [await harness.store.events(job=ref) for ref in refs]
    assert (first.type, first.data["details"]) == ("edited", {"priority": 7})
    assert second.data["details"].keys() == {"run_at"}
    assert datetime.fromisoformat(second.data["details"]["run_at"]) == when
