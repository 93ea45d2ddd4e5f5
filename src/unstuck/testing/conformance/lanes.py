"""Share.per_lane: the lanes of a queue take turns, and none has more running than allowed."""

from __future__ import annotations

import asyncio
from collections import Counter

from unstuck.protocol.job import Job
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import completed, released, retried
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import QUEUE, enqueued, leased, look, new, trouble
from unstuck.testing.harnesses.harness import Harness


async def turn(
    store: Store, limit: int = 100, *, per_lane: int = 100, at_a_time: int | None = None
) -> list[Job]:
    return await store.lease({QUEUE: Share(60.0, limit, at_a_time, per_lane)}, limit, "w")


def lanes(jobs: list[Job]) -> list[str | None]:
    return [job.lane for job in jobs]


async def test_a_lane_stays_with_its_job(harness: Harness) -> None:
    [ref] = await enqueued(harness.store, lane="Ann & Söhne: €")
    [plain] = await enqueued(harness.store)

    assert (await look(harness.store, ref)).lane == "Ann & Söhne: €"
    assert (await look(harness.store, plain)).lane is None
    assert lanes(await leased(harness.store, 2)) == ["Ann & Söhne: €", None]


async def test_a_job_started_over_has_the_lane_it_is_given_then(harness: Harness) -> None:
    await harness.store.enqueue([new(key="k", lane="a")])
    [job] = await leased(harness.store)
    await harness.store.settle([completed(job.lease)])

    await harness.store.enqueue([new(key="k", lane="b", again=True)])

    assert (await look(harness.store, job.ref)).lane == "b"


async def test_a_short_lane_does_not_wait_behind_a_long_one(harness: Harness) -> None:
    await harness.store.enqueue([new(lane="a") for _ in range(1000)])
    await harness.store.enqueue([new(lane="b") for _ in range(5)])

    first = await turn(harness.store, 4)
    second = await turn(harness.store, 6)

    assert lanes(first) == ["a", "b", "a", "b"]
    assert Counter(lanes(second)) == {"a": 3, "b": 3}
    assert lanes(await turn(harness.store, 3)) == ["a", "a", "a"]  # nothing is left of b: nobody idles


async def test_a_lane_that_has_much_running_lets_the_others_go_first(harness: Harness) -> None:
    await enqueued(harness.store, 10, lane="a")
    await turn(harness.store, 3)
    await enqueued(harness.store, 10, lane="b")

    assert lanes(await turn(harness.store, 3)) == ["b", "b", "b"]
    assert Counter(lanes(await turn(harness.store, 4))) == {"a": 2, "b": 2}


async def test_within_a_lane_the_order_stays(harness: Harness) -> None:
    refs = await enqueued(harness.store, 3, lane="a")
    urgent = await enqueued(harness.store, lane="a", priority=9)

    assert [job.ref for job in await turn(harness.store)] == urgent + refs


async def test_a_lane_has_no_more_running_than_allowed(harness: Harness) -> None:
    await enqueued(harness.store, 10, lane="a")
    await enqueued(harness.store, 1, lane="b")

    jobs = await turn(harness.store, per_lane=2)

    assert Counter(lanes(jobs)) == {"a": 2, "b": 1}
    assert await turn(await harness.another(), per_lane=2) == []
    await harness.store.settle([completed(next(job.lease for job in jobs if job.lane == "a"))])
    assert lanes(await turn(harness.store, per_lane=2)) == ["a"]


async def test_a_job_that_went_back_makes_room_in_its_lane(harness: Harness) -> None:
    await enqueued(harness.store, 3, lane="a", max_attempts=5)
    first, second = await turn(harness.store, per_lane=2)

    await harness.store.settle([released(first.lease), retried(second.lease, trouble(), 3600.0)])

    assert len(await turn(harness.store, per_lane=2)) == 2


async def test_jobs_without_a_lane_run_behind_any_number_of_full_ones(harness: Harness) -> None:
    await harness.store.enqueue([new(lane="a") for _ in range(1500)])
    plain = await enqueued(harness.store, 5)

    jobs = await turn(harness.store, 10, per_lane=1)

    assert Counter(lanes(jobs)) == {"a": 1, None: 5}
    assert {job.ref for job in jobs if job.lane is None} == set(plain)


async def test_jobs_without_a_lane_are_no_lane(harness: Harness) -> None:
    await enqueued(harness.store, 5)

    assert len(await turn(harness.store, 3, per_lane=1)) == 3
    assert len(await turn(harness.store, 3, per_lane=1)) == 2


async def test_a_lane_with_nothing_running_is_not_starved_by_jobs_without_one(harness: Harness) -> None:
    """Each round brings more urgent jobs than are done. Ahead of the lane's are those of the first nine, and no others."""
    await enqueued(harness.store, lane="a")
    for rounds in range(15):
        await enqueued(harness.store, 3, priority=9)
        jobs = await turn(harness.store, 2, per_lane=2)
        await harness.store.settle([completed(job.lease) for job in jobs])
        if "a" in lanes(jobs):
            assert rounds >= 9, "it must not overtake urgent jobs before it has waited out their head start"
            return
        await harness.age(60)
    raise AssertionError("the lane's job was never run")


async def test_a_lane_that_has_something_running_waits_for_its_end_at_the_most(harness: Harness) -> None:
    """To others of the queue it gives way as long as it is served; not a moment longer, however many of them come."""
    await enqueued(harness.store, 3, lane="a")
    [first] = await turn(harness.store, 1, per_lane=2)
    for _ in range(12):
        await enqueued(harness.store, 2)
        [job] = await turn(harness.store, 1, per_lane=2)
        assert job.lane is None
        await harness.store.settle([completed(job.lease)])
        await harness.age(60)

    await harness.store.settle([completed(first.lease)])

    assert lanes(await turn(harness.store, 1, per_lane=2)) == ["a"]
    assert lanes(await turn(harness.store, 12, per_lane=2)) == [None] * 12
    assert lanes(await turn(harness.store, 1, per_lane=2)) == ["a"]  # nobody idles


async def test_delayed_jobs_take_no_turn_until_they_are_due(harness: Harness) -> None:
    await enqueued(harness.store, lane="a", delay=60.0)
    assert await turn(harness.store) == []

    await harness.age(61)

    assert lanes(await turn(harness.store)) == ["a"]


async def test_a_paused_queue_gives_no_lane_anything(harness: Harness) -> None:
    await enqueued(harness.store, 2, lane="a")
    await enqueued(harness.store, 2)
    await harness.store.pause(QUEUE, "for a while")

    assert await turn(harness.store) == []
    await harness.store.pause(QUEUE, None)
    assert len(await turn(harness.store)) == 4


async def test_both_limits_hold_together(harness: Harness) -> None:
    for lane in ("a", "b", "c"):
        await enqueued(harness.store, 5, lane=lane)

    first = await turn(harness.store, 4, per_lane=2, at_a_time=5)
    second = await turn(harness.store, 4, per_lane=2, at_a_time=5)

    assert Counter(lanes(first + second)) in ({"a": 2, "b": 2, "c": 1}, {"a": 2, "b": 1, "c": 2})
    assert await turn(harness.store, 4, per_lane=2, at_a_time=5) == []


async def test_lanes_of_several_queues_take_their_turns_in_one_call(harness: Harness) -> None:
    for queue in ("p", "r"):
        await harness.store.enqueue(
            [new(queue, lane="a") for _ in range(20)] + [new(queue, lane="b") for _ in range(2)]
        )
    shares = {"p": Share(60.0, 9, None, 3), "r": Share(60.0, 9, None, 3)}

    jobs = await harness.store.lease(shares, 8, "w")
    assert len(jobs) == 8
    jobs += await harness.store.lease(shares, 20, "w")

    got = Counter((job.queue, job.lane) for job in jobs)
    assert got == {("p", "a"): 3, ("p", "b"): 2, ("r", "a"): 3, ("r", "b"): 2}


async def test_a_short_lane_gets_its_turn_also_beside_another_queue(harness: Harness) -> None:
    await harness.store.enqueue([new("other"), *(new(lane="a") for _ in range(20)), new(lane="b")])

    jobs = await harness.store.lease({QUEUE: Share(60.0, 4, None, 4), "other": Share(60.0, 4)}, 4, "w")

    assert len(jobs) == 4
    assert lanes(jobs).count("b") == 1


async def test_lanes_of_two_queues_do_not_mix(harness: Harness) -> None:
    await enqueued(harness.store, 2, queue="other", lane="a")
    await leased(harness.store, 2, queue="other")
    await enqueued(harness.store, 2, lane="a")

    assert len(await turn(harness.store, per_lane=2)) == 2


async def test_many_leasers_at_once_stay_within_every_lanes_limit(harness: Harness) -> None:
    for lane in ("a", "b", "c"):
        await enqueued(harness.store, 20, lane=lane)
    await enqueued(harness.store, 4)
    stores = [await harness.another() for _ in range(4)]

    got = await asyncio.gather(*(turn(store, 3, per_lane=2) for store in stores * 3))

    jobs = [job for some in got for job in some]
    assert Counter(lanes(jobs)) == {"a": 2, "b": 2, "c": 2, None: 4}
    assert len({job.ref for job in jobs}) == len(jobs)


async def test_without_a_lane_limit_lanes_mean_nothing(harness: Harness) -> None:
    refs = await enqueued(harness.store, 3, lane="a")
    refs += await enqueued(harness.store, 1, lane="b")

    assert [job.ref for job in await leased(harness.store, 4)] == refs
