"""What operators see, and small changes they make: explain, edit, positions in line, buckets, checks."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import pytest

from unstuck.operations.explain import explain
from unstuck.operations.verify import broken_rules
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Ref, Status
from unstuck.protocol.limits import Grant
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed, failed, released, retried
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import ahead, counts, enqueued, leased, look, now, one_leased, trouble
from unstuck.testing.harnesses.harness import Harness

RATE = {"rate": {"count": 2, "per": 60.0, "bucket": ""}}


async def why(store: Store, ref: Ref) -> str:
    return await explain(store, await look(store, ref))


async def alive(store: Store, **facts: object) -> None:
    await store.heartbeat(WorkerInfo(id="w", queues=("q",), tasks=("task",), **facts), [])  # type: ignore[arg-type]


async def test_explain_distinguishes_the_reasons_why_a_job_waits(harness: Harness) -> None:
    [ref] = await enqueued(harness.store)
    [later] = await enqueued(harness.store, delay=60)

    assert (await why(harness.store, ref)).startswith("No worker takes queue 'q': start one that does.")
    await harness.store.heartbeat(WorkerInfo(id="w", queues=("q",), tasks=("another",)), [])
    assert (await why(harness.store, ref)).startswith("Task 'task' is unknown to every worker of queue 'q'")
    await alive(harness.store)
    assert await why(harness.store, ref) == "It is the next of queue 'q' and waits for a free worker."
    [behind] = await enqueued(harness.store)
    assert await why(harness.store, behind) == "It waits behind 1 other due job of queue 'q'."
    assert (await why(harness.store, later)).startswith("It is due in ")
    await harness.store.pause("q", "the provider is down")
    assert (await why(harness.store, ref)).startswith("Queue 'q' is paused: the provider is down.")


async def test_explain_names_which_limit_keeps_a_job_waiting(harness: Harness) -> None:
    [ref] = await enqueued(harness.store)
    await alive(harness.store, limits={"q": RATE})
    assert "waits for a free worker" in await why(harness.store, ref)

    await harness.store.take("q", 2, 2, 60.0)
    answer = await why(harness.store, ref)
    assert answer.startswith("Queue 'q' is rate limited (2 in 60 s) for another ")
    await harness.store.give_back("q", close_for=300.0)
    assert "for another 5 min: a handler was asked to wait so long" in await why(harness.store, ref)

    await alive(harness.store, limits={"q": {"limit": 1}})
    await enqueued(harness.store, priority=9)
    await leased(harness.store)
    assert "runs at most 1 job at a time" in await why(harness.store, ref)


async def test_explain_names_who_holds_a_job_and_how_one_ended(harness: Harness) -> None:
    job = await one_leased(harness.store, owner="somebody", max_attempts=2)
    assert re.match(
        r"It is running, for \S+ s so far: held by somebody for another ", await why(harness.store, job.ref)
    )
    await harness.age(61)
    assert (await why(harness.store, job.ref)).startswith("Its lease by somebody ran out ")
    await harness.store.settle([retried(job.lease, trouble(), 60.0)])
    assert "(attempt 1 failed: trouble: it did not work)" in await why(harness.store, job.ref)

    [dead, done, gone] = [await one_leased(harness.store) for _ in range(3)]
    await harness.store.settle([failed(dead.lease, trouble()), completed(done.lease)])
    await harness.store.cancel([gone.ref])
    assert "after 1 of 3 attempts (trouble: it did not work)" in await why(harness.store, dead.ref)
    assert (await why(harness.store, done.ref)).startswith("It completed ")
    assert (await why(harness.store, gone.ref)).startswith("It was cancelled ")


async def test_jobs_that_came_together_stand_in_their_order(harness: Harness) -> None:
    await enqueued(harness.store, 2, queue="other")
    refs = await enqueued(harness.store, 3)

    assert [await ahead(harness.store, ref) for ref in refs] == [0, 1, 2]


async def test_an_edit_moves_a_waiting_job_in_line(harness: Harness) -> None:
    first, second = await enqueued(harness.store, 2)

    assert await harness.store.edit([second], priority=9) == 1
    assert [await ahead(harness.store, ref) for ref in (first, second)] == [1, 0]
    assert [job.id for job in await leased(harness.store, 2)] == [second.id, first.id]


async def test_an_edit_of_the_time_delays_a_job_or_makes_it_due(harness: Harness) -> None:
    [soon] = await enqueued(harness.store)
    [late] = await enqueued(harness.store, delay=3600)
    at = now() + timedelta(hours=1)

    assert await harness.store.edit([soon], run_at=at) == 1
    assert await harness.store.edit([late], run_at=now() - timedelta(seconds=5)) == 1
    assert abs((await look(harness.store, soon)).run_at - at) < timedelta(seconds=1)
    assert [job.id for job in await leased(harness.store, 9)] == [late.id]
    assert "edited" in [event.type for event in await harness.store.events(job=soon)]


async def test_only_jobs_that_wait_are_edited(harness: Harness) -> None:
    held = await one_leased(harness.store)
    done = await one_leased(harness.store)
    await harness.store.settle([completed(done.lease)])
    before = [await look(harness.store, job.ref) for job in (held, done)]

    refs = [held.ref, done.ref, Ref("q", "nobody"), Ref("other", held.id)]
    assert await harness.store.edit(refs, priority=5, run_at=now()) == 0
    assert [await look(harness.store, job.ref) for job in (held, done)] == before
    assert await harness.store.edit([], priority=5) == 0


async def test_an_edit_of_nothing_changes_nothing(harness: Harness) -> None:
    [ref] = await enqueued(harness.store)

    assert await harness.store.edit([ref]) == 0
    assert await harness.store.events(job=ref) == []


async def test_a_bucket_can_be_looked_at_without_taking_from_it(harness: Harness) -> None:
    assert await harness.store.take("b") == Grant()
    await harness.store.take("b", 2, 5, 60.0)
    await harness.store.give_back("b", close_for=30.0)
    standing = await harness.store.take("b")
    assert (standing.granted, standing.out) == (0, 2)
    assert standing.first_back == pytest.approx(60, abs=10)
    assert standing.closed_for == pytest.approx(30, abs=10)
    assert (await harness.store.take("b", 0, 5, 60.0)).out == 2
    await harness.age(31)
    assert (await harness.store.take("b", 5, 5, 60.0)).granted == 3
    await harness.age(61)
    assert await harness.store.take("b") == Grant()


async def test_a_grant_shows_how_things_stand_with_the_bucket_after_it(harness: Harness) -> None:
    first = await harness.store.take("b", 2, 5, 60.0)
    assert (first.granted, first.out, first.closed_for) == (2, 2, 0.0)
    assert first.first_back == pytest.approx(60, abs=1)
    await harness.age(20)
    second = await harness.store.take("b", 5, 5, 60.0)
    assert (second.granted, second.out) == (3, 5)
    assert second.wait == second.first_back == pytest.approx(40, abs=10)
    await harness.store.give_back("b", close_for=90.0)
    closed = await harness.store.take("b", 1, 5, 60.0)
    assert (closed.granted, closed.out) == (0, 5)
    assert closed.first_back == pytest.approx(40, abs=10)
    assert closed.wait == closed.closed_for == pytest.approx(90, abs=10)


async def test_tokens_are_given_back_and_the_bucket_closed_in_one_step(harness: Harness) -> None:
    grant = await harness.store.take("b", 3, 5, 60.0)
    await harness.store.give_back("b", 2, grant.stamp, close_for=30.0)

    standing = await (await harness.another()).take("b")
    assert standing.out == 1
    assert standing.closed_for == pytest.approx(30, abs=10)


async def test_how_long_the_next_in_line_has_waited_is_known(harness: Harness) -> None:
    assert (await counts(harness.store)).waited is None
    await enqueued(harness.store, delay=3600)
    assert (await counts(harness.store)).waited is None
    await enqueued(harness.store)
    await harness.age(90)
    assert (await counts(harness.store)).waited == pytest.approx(90, abs=10)


async def test_a_store_in_use_breaks_no_rule(harness: Harness) -> None:
    await enqueued(harness.store, 3)
    job = await one_leased(harness.store, max_attempts=1)
    await harness.store.settle([failed(job.lease, trouble())])
    await leased(harness.store)

    assert await broken_rules(harness.store) == []
    levels = {finding.level for finding in await harness.store.checkup()}
    assert "failure" not in levels


async def test_verify_reports_no_job_that_changes_while_it_reads(harness: Harness) -> None:
    store, verifier = harness.store, await harness.another()
    await enqueued(store, 40)

    async def churn(owner: str) -> None:
        for _ in range(8):
            jobs = await leased(store, 10, owner=owner)
            halves = [completed(job.lease) for job in jobs[::2]], [released(job.lease) for job in jobs[1::2]]
            for outcomes in halves:
                await store.settle(outcomes)
            await store.requeue(Filter(status=Status.COMPLETED))

    changing = asyncio.gather(*(churn(f"w{number}") for number in range(4)))
    reported: list[str] = []
    while not changing.done():
        reported += await broken_rules(verifier)
    await changing
    assert reported == []


async def test_those_that_stand_before_a_job_are_counted_whatever_their_priority(harness: Harness) -> None:
    store = harness.store
    refs = [
        ref for priority in (0, 0, 5, 9) for ref in await enqueued(store, 1, queue="q", priority=priority)
    ]
    await enqueued(store, 1, delay=60.0, priority=9)  # it does not stand there yet

    assert [await ahead(store, ref) for ref in refs] == [2, 3, 1, 0]
    await leased(store, 1)
    assert [await ahead(store, ref) for ref in refs[:3]] == [1, 2, 0]
