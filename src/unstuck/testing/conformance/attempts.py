"""How many attempts and crashes a job has, and what follows the last."""

from __future__ import annotations

from typing import Any

import pytest

from unstuck.config.policy import Policy
from unstuck.protocol.job import Category, Status
from unstuck.protocol.outcome import released
from unstuck.protocol.retry import fate
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased, trouble
from unstuck.testing.conformance.recovery import recover
from unstuck.testing.harnesses.harness import Harness


@pytest.mark.accepts("EMB-073", "REC-048")
async def test_with_a_crash_budget_a_crash_is_not_a_failure(harness: Harness) -> None:
    policy = Policy(lease=300.0, heartbeat=120.0, max_crashes=10)
    budget: dict[str, Any] = {"max_crashes": policy.max_crashes, "lapse_backoff": policy.lapse_backoff}
    job = await one_leased(harness.store, owner="crashed", seconds=policy.lease, max_attempts=2, **budget)
    await harness.age(290)
    assert await recover(harness.store) == []
    await harness.age(11)
    await recover(harness.store)
    assert (await look(harness.store, job.ref)).status is Status.PENDING

    [job] = await leased(await harness.another(), owner="healthy")
    assert (job.attempts, job.crashes) == (2, 1)
    first = fate(job, trouble())
    assert first.status is Status.PENDING, "the crash took the place of a failure"
    await harness.store.settle([first])
    await harness.age(10)
    [job] = await leased(harness.store)
    assert fate(job, trouble()).status is Status.FAILED, "the second real failure of two is final"


@pytest.mark.accepts("REAP-001")
async def test_a_job_that_kills_every_worker_ends_when_its_crash_budget_is_spent(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, max_attempts=2, max_crashes=3)
    for crash in range(1, 4):
        assert len(await leased(harness.store)) == 1
        await harness.age(61)
        await recover(harness.store)
        assert (await look(harness.store, ref)).crashes == crash

    assert (await look(harness.store, ref)).status is Status.FAILED
    assert await leased(harness.store) == []


@pytest.mark.accepts("EMB-035", "EMB-036", "EMB-148")
async def test_the_third_transient_failure_of_three_is_final(harness: Harness) -> None:
    [ref] = await enqueued(harness.store)  # three attempts are the default
    for attempt in range(1, 4):
        [job] = await leased(harness.store)
        assert job.attempts == attempt
        await harness.store.settle([fate(job, trouble())])
        await harness.age(10)

    for _ in range(2):  # a reaper that finds a job without a lease gives it one first
        assert (await look(harness.store, ref)).status is Status.FAILED
        assert await leased(harness.store) == []
        await harness.age(10_000)
        assert await recover(harness.store) == []


@pytest.mark.accepts("EMB-062", "EMB-147", "MQ-023")
async def test_each_failed_attempt_counts(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([fate(job, trouble())])
    await harness.age(10)

    [again] = await leased(harness.store)
    assert (job.attempts, again.attempts) == (1, 2)


async def test_ten_releases_and_a_failure_still_leave_retries(harness: Harness) -> None:
    job = await one_leased(harness.store)
    for _ in range(10):
        await harness.store.settle([released(job.lease)])
        [job] = await leased(harness.store)

    assert fate(job, trouble()).status is Status.PENDING


@pytest.mark.accepts("EMB-064", "EMB-065")
async def test_a_permanent_error_fails_at_once(harness: Harness) -> None:
    job = await one_leased(harness.store, max_attempts=5)

    await harness.store.settle([fate(job, trouble(Category.PERMANENT))])

    assert (await look(harness.store, job.ref)).status is Status.FAILED
    await harness.age(10_000)
    assert await leased(harness.store) == []
