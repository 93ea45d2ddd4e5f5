"""release: a lease goes back unspent, to the next caller that asks."""

from __future__ import annotations

import pytest

from unstuck.operations.jobs import Jobs
from unstuck.protocol.job import Status
from unstuck.protocol.outcome import Settled, completed, released
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased, states
from unstuck.testing.harnesses.harness import Harness


@pytest.mark.accepts("REC-020", "REC-022", "REC-023")
async def test_a_released_job_is_pending_unlocked_and_leasable_at_once(harness: Harness) -> None:
    job = await one_leased(harness.store, owner="a")

    assert await harness.store.settle([released(job.lease)]) == [Settled.APPLIED]

    stored = await look(harness.store, job.ref)
    assert (stored.status, stored.owner, stored.lease_until, stored.heartbeat_at) == (
        Status.PENDING,
        None,
        None,
        None,
    )
    [again] = await leased(await harness.another(), owner="b")
    assert again.ref == job.ref


@pytest.mark.accepts("REC-021", "REC-032")
async def test_seven_of_ten_go_back_and_three_finish(harness: Harness) -> None:
    await enqueued(harness.store, 10)
    jobs = await leased(harness.store, 10, owner="a")
    await harness.store.settle([completed(job.lease) for job in jobs[:3]])

    count = await Jobs(harness.store).release_jobs([job.id for job in jobs[3:]], "a")

    assert count == 7
    assert await states(harness.store) == {"completed": 3, "pending": 7}
    assert len(await leased(harness.store, 10, owner="b")) == 7


@pytest.mark.accepts("REC-024", "REC-025")
async def test_only_the_callers_own_jobs_are_released(harness: Harness) -> None:
    await enqueued(harness.store, 6)
    mine = await leased(harness.store, 3, owner="a")
    theirs = await leased(harness.store, 3, owner="b")

    count = await Jobs(harness.store).release_jobs([mine[1].id, mine[2].id, theirs[1].id], "a")

    assert count == 2
    assert [await look(harness.store, job.ref) for job in theirs] == theirs
    assert await look(harness.store, mine[0].ref) == mine[0]
    assert await states(harness.store) == {"pending": 2, "processing": 4}


class _Counted:
    """Counts what is asked of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> object:
        self.asked.append(name)
        return getattr(self._store, name)


@pytest.mark.accepts("REC-068")
async def test_many_are_released_in_one_operation_that_knows_their_owner(harness: Harness) -> None:
    await enqueued(harness.store, 40)
    mine = await leased(harness.store, 30, owner="a")
    theirs = await leased(harness.store, 10, owner="b")
    counted = _Counted(harness.store)

    ids = [job.id for job in (*mine, *theirs)]
    assert await Jobs(counted).release_jobs(ids, "a") == 30  # type: ignore[arg-type]

    assert counted.asked == ["find", "settle"]
    assert await states(harness.store) == {"pending": 30, "processing": 10}
    assert [await look(harness.store, job.ref) for job in theirs] == theirs


class _Untouchable:
    """Fails the test whatever is asked of it."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"the store was asked for {name}")


@pytest.mark.accepts("REC-026")
async def test_an_empty_release_asks_the_store_nothing(harness: Harness) -> None:
    assert await Jobs(_Untouchable()).release_jobs([], "a") == 0  # type: ignore[arg-type]
    assert await harness.store.settle([]) == []


async def test_own_foreign_unknown_and_repeated_ids_are_distinguished(harness: Harness) -> None:
    await enqueued(harness.store, 2)
    [mine] = await leased(harness.store, owner="a")
    [theirs] = await leased(harness.store, owner="b")

    ids = [mine.id, mine.id, theirs.id, "no such job"]
    assert await Jobs(harness.store).release_jobs(ids, "a") == 1
    assert await Jobs(harness.store).release_jobs(ids, "a") == 0


async def test_a_finished_job_cannot_be_released(harness: Harness) -> None:
    job = await one_leased(harness.store, owner="a")
    await harness.store.settle([completed(job.lease)])

    assert await Jobs(harness.store).release_jobs([job.id], "a") == 0
    assert (await look(harness.store, job.ref)).status is Status.COMPLETED


async def test_a_release_gives_the_attempt_back_but_not_the_fence(harness: Harness) -> None:
    job = await one_leased(harness.store, max_attempts=2)
    for _ in range(10):
        await harness.store.settle([released(job.lease)])
        assert (await look(harness.store, job.ref)).attempts == 0
        [again] = await leased(harness.store)
        assert again.fence > job.fence
        job = again

    assert job.attempts == 1


async def test_a_release_may_ask_for_a_pause(harness: Harness) -> None:
    job = await one_leased(harness.store)

    await harness.store.settle([released(job.lease, 20.0)])

    assert await leased(harness.store) == []
    await harness.age(21)
    [again] = await leased(harness.store)
    assert again.attempts == 1


async def test_a_released_job_returns_to_its_place_in_line(harness: Harness) -> None:
    refs = await enqueued(harness.store, 3)
    [first] = await leased(harness.store)

    await harness.store.settle([released(first.lease)])

    assert [job.ref for job in await leased(harness.store, 3)] == refs
