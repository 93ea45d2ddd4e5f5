"""The job that follows a final failure: it rides on the job that may fail, and is added in the same step."""

from __future__ import annotations

from msgspec.structs import replace

from unstuck.protocol.job import EXPIRED, FollowUp
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Settled
from unstuck.protocol.retry import fate
from unstuck.recovery.reaper import Reaper
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased, states, trouble
from unstuck.testing.harnesses.harness import Harness

FOLLOW_UP = FollowUp(queue="reports", task="report", names=("which", "task", "why"), max_attempts=7)


async def test_what_follows_a_final_failure_rides_on_the_job(harness: Harness) -> None:
    nested = replace(FOLLOW_UP, on_failure=FOLLOW_UP, backoff=(5.0,), expires=30.0)
    [ref] = await enqueued(harness.store, on_failure=nested)

    [job] = await leased(harness.store)

    assert job.on_failure == nested
    assert (await look(harness.store, ref)).on_failure == nested


async def test_a_final_failure_adds_one_job_with_id_task_and_failure(harness: Harness) -> None:
    job = await one_leased(harness.store, on_failure=FOLLOW_UP, max_attempts=1, trace="t")
    outcome = fate(job, trouble())

    answers = await harness.store.settle([outcome, outcome])

    assert answers == [Settled.APPLIED, Settled.REPEATED]
    [reports] = (await harness.store.find(Filter(queue="reports"))).jobs
    assert (reports.task, reports.parent, reports.trace, reports.max_attempts) == ("report", job.id, "t", 7)
    assert (reports.payload["which"], reports.payload["task"]) == (job.id, "task")
    assert reports.payload["why"]["code"] == "trouble"


async def test_each_final_failure_of_a_job_has_a_job_of_its_own(harness: Harness) -> None:
    job = await one_leased(harness.store, on_failure=FOLLOW_UP, max_attempts=1)
    await harness.store.settle([fate(job, trouble())])
    await harness.store.requeue(Filter(dead=True))
    [again] = await leased(harness.store)

    await harness.store.settle([fate(again, trouble())])

    assert await states(harness.store, "reports") == {"pending": 2}


async def test_a_failure_that_is_tried_again_adds_nothing(harness: Harness) -> None:
    job = await one_leased(harness.store, on_failure=FOLLOW_UP)

    await harness.store.settle([fate(job, trouble())])

    assert await states(harness.store, "reports") == {}


async def test_a_reaper_adds_it_too(harness: Harness) -> None:
    await one_leased(harness.store, on_failure=FOLLOW_UP, max_attempts=1)
    await enqueued(harness.store, on_failure=FOLLOW_UP, expires=60.0)
    await harness.age(61)

    await Reaper(harness.store).recover()

    found = (await harness.store.find(Filter(queue="reports"))).jobs
    assert sorted(job.payload["why"]["code"] for job in found) == [EXPIRED, "timeout"]


async def test_a_cancelled_job_adds_nothing(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, on_failure=FOLLOW_UP)

    await harness.store.cancel([ref])

    assert await states(harness.store, "reports") == {}
