"""What operators do to many jobs: all of them are changed, also if there are more than fit into one step of the store."""

from __future__ import annotations

import pytest

from unstuck.operations.jobs import Jobs
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed
from unstuck.testing.conformance.given import enqueued, leased, states
from unstuck.testing.harnesses.harness import Harness

MANY = 45


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are several of them without thousands of jobs."""
    monkeypatch.setattr("unstuck.operations.jobs.AT_ONCE", 20)


@pytest.mark.usefixtures("small_steps")
async def test_all_jobs_that_match_are_cancelled_however_many(harness: Harness) -> None:
    await enqueued(harness.store, 3)
    await harness.store.settle([completed(job.lease) for job in await leased(harness.store, 3)])
    await enqueued(harness.store, MANY)
    await enqueued(harness.store, 2, queue="other")
    await leased(harness.store, 25)

    assert await Jobs(harness.store).cancel_matching(Filter(queue="q")) == MANY

    assert await states(harness.store) == {"completed": 3, "failed": MANY}
    assert await states(harness.store, "other") == {"pending": 2}
    assert await Jobs(harness.store).cancel_matching(Filter(queue="q")) == 0


@pytest.mark.usefixtures("small_steps")
async def test_all_that_a_worker_holds_is_listed_and_released_however_much(harness: Harness) -> None:
    await enqueued(harness.store, MANY)
    mine = await leased(harness.store, MANY - 1)
    await leased(harness.store, 1, owner="another")
    jobs = Jobs(harness.store)

    held = await jobs.held_by("w")

    assert sorted(held) == sorted(job.id for job in mine)
    assert await jobs.release_jobs(held, "w") == MANY - 1
    assert await states(harness.store) == {"pending": MANY - 1, "processing": 1}


@pytest.mark.usefixtures("small_steps")
async def test_all_finished_jobs_that_match_are_put_back_or_deleted_however_many(harness: Harness) -> None:
    await enqueued(harness.store, MANY)
    await Jobs(harness.store).cancel_matching(Filter())

    assert await Jobs(harness.store).retry(Filter(queue="q")) == MANY
    await Jobs(harness.store).cancel_matching(Filter())
    await harness.age(60)
    assert await Jobs(harness.store).cleanup_jobs(days=0) == MANY
    assert await states(harness.store) == {}
