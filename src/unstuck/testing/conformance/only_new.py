"""Share.only_new: jobs that ended a lease before are left to workers that have room."""

from __future__ import annotations

import pytest

from unstuck.protocol.job import Job, Ref
from unstuck.protocol.leases import PASSED_BY, Share
from unstuck.protocol.outcome import completed, released, retried
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.testing.conformance.given import QUEUE, enqueued, leased, new, one_leased, trouble
from unstuck.testing.harnesses.harness import Harness

AHEAD = Share(60.0, 100, only_new=True)


async def ahead(store: Store, share: Share = AHEAD) -> list[Job]:
    return await store.lease({QUEUE: share}, share.limit, "w")


def refs(jobs: list[Job]) -> list[Ref]:
    return [job.ref for job in jobs]


async def had_before(store: Store, count: int = 1, **facts: str) -> list[Ref]:
    """Jobs that stand at the head of the line and were given back by a worker."""
    found = await enqueued(store, count, priority=9, **facts)
    jobs = await leased(store, count)
    assert sorted(refs(jobs)) == sorted(found)
    await store.settle([released(job.lease) for job in jobs])
    return found


@pytest.mark.parametrize("per_lane", [None, 50])
async def test_what_was_given_back_is_passed_by_and_comes_first_as_always_without(
    harness: Harness, per_lane: int | None
) -> None:
    share = AHEAD._replace(per_lane=per_lane)
    [before] = await had_before(harness.store)
    fresh = await enqueued(harness.store, 3)

    assert refs(await ahead(harness.store, share)) == fresh
    assert await ahead(harness.store, share) == []
    later = await enqueued(harness.store)
    assert refs(await ahead(harness.store, share._replace(only_new=False))) == [before, *later]


async def test_what_was_retried_is_passed_by(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([retried(job.lease, trouble(), 0.0)])

    assert await ahead(harness.store) == []
    assert refs(await leased(harness.store)) == [job.ref]


async def test_what_was_retried_with_a_delay_is_passed_by_when_that_is_over(harness: Harness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([retried(job.lease, trouble(), 20.0)])
    await harness.age(21)

    assert await ahead(harness.store) == []
    assert refs(await leased(harness.store)) == [job.ref]


async def test_what_was_recovered_is_passed_by(harness: Harness) -> None:
    job = await one_leased(harness.store, seconds=20.0, max_crashes=3)
    await harness.age(21)
    assert len(await Reaper(harness.store).recover()) == 1
    fresh = await enqueued(harness.store)

    assert refs(await ahead(harness.store)) == fresh
    assert refs(await leased(harness.store)) == [job.ref]


async def test_each_queue_of_a_call_has_its_own_wish(harness: Harness) -> None:
    for queue in ("a", "b"):
        await enqueued(harness.store, queue=queue)
        [job] = await leased(harness.store, queue=queue)
        await harness.store.settle([released(job.lease)])
        await enqueued(harness.store, queue=queue)

    jobs = await harness.store.lease({"a": AHEAD, "b": AHEAD._replace(only_new=False)}, 100, "w")
    assert sorted(job.queue for job in jobs) == ["a", "b", "b"]


async def test_a_place_under_a_limit_is_left_to_what_was_given_back(harness: Harness) -> None:
    [before] = await had_before(harness.store)
    [fresh, later] = await enqueued(harness.store, 2)

    assert await ahead(harness.store, AHEAD._replace(at_a_time=1)) == []
    [job] = await ahead(harness.store, AHEAD._replace(at_a_time=2))
    assert job.ref == fresh
    await harness.store.settle([completed(job.lease)])
    both = await ahead(harness.store, AHEAD._replace(at_a_time=2, only_new=False))
    assert refs(both) == [before, later]


async def test_the_room_of_a_lane_is_left_to_what_was_given_back_of_it(harness: Harness) -> None:
    [before] = await had_before(harness.store, lane="a")
    await enqueued(harness.store, lane="a")
    [other] = await enqueued(harness.store, lane="b")
    lanes = AHEAD._replace(per_lane=1)

    assert refs(await ahead(harness.store, lanes)) == [other]
    assert refs(await ahead(harness.store, lanes._replace(only_new=False))) == [before]


async def test_in_a_lane_with_room_those_behind_are_taken(harness: Harness) -> None:
    await had_before(harness.store, lane="a")
    [fresh] = await enqueued(harness.store, lane="a")

    assert refs(await ahead(harness.store, AHEAD._replace(per_lane=2))) == [fresh]


async def test_no_more_are_passed_by_than_a_lease_can_look_at(harness: Harness) -> None:
    await had_before(harness.store, PASSED_BY)
    fresh = await enqueued(harness.store, 2)

    [job] = await ahead(harness.store, AHEAD._replace(limit=1))
    assert job.ref == fresh[0]
    await harness.store.settle([released(job.lease)])
    assert await ahead(harness.store, AHEAD._replace(limit=1)) == []
    assert refs(await ahead(harness.store, AHEAD._replace(limit=2))) == fresh[1:]


async def test_a_job_that_was_started_over_may_be_passed_by_but_is_not_lost(harness: Harness) -> None:
    await harness.store.enqueue([new(key="k")])
    [job] = await leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    await harness.store.enqueue([new(key="k", again=True)])

    assert refs([*await ahead(harness.store), *await leased(harness.store)]) == [job.ref]
