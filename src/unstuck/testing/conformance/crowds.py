"""Share.at_a_time: no more jobs of a queue run at a time than allowed, for all workers together."""

from __future__ import annotations

import asyncio

from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import completed, released
from unstuck.protocol.store import Store
from unstuck.testing.conformance.given import QUEUE, counts, enqueued, leased
from unstuck.testing.harnesses.harness import Harness


async def crowd(store: Store, most: int, *, limit: int = 100, owner: str = "w") -> int:
    """How many jobs a worker gets of a queue where so many may run at a time."""
    return len(await store.lease({QUEUE: Share(60.0, limit, at_a_time=most)}, limit, owner))


async def test_the_limit_of_a_queue_counts_the_jobs_of_all_owners(harness: Harness) -> None:
    await enqueued(harness.store, 10)

    assert await crowd(harness.store, 5, limit=3, owner="ann") == 3
    assert await crowd(await harness.another(), 5, owner="bob") == 2
    assert await crowd(harness.store, 5, owner="cid") == 0
    assert await crowd(harness.store, 6, owner="cid") == 1  # by the limit the caller says


async def test_a_job_that_ended_makes_room_for_one(harness: Harness) -> None:
    await enqueued(harness.store, 10)
    done, back, _ = await leased(harness.store, 3)
    assert await crowd(harness.store, 3) == 0

    await harness.store.settle([completed(done.lease), released(back.lease)])

    assert await crowd(harness.store, 3) == 2


async def test_a_job_whose_lease_ran_out_takes_room_until_it_is_taken_back(harness: Harness) -> None:
    await enqueued(harness.store, 2)
    await leased(harness.store, 1, seconds=10.0)
    await harness.age(60)

    assert await crowd(harness.store, 1) == 0


async def test_a_limit_below_what_runs_gives_nothing(harness: Harness) -> None:
    await enqueued(harness.store, 10)
    await leased(harness.store, 5)

    assert await crowd(harness.store, 2) == 0


async def test_many_leasers_at_once_stay_within_the_limit(harness: Harness) -> None:
    await enqueued(harness.store, 100)
    stores = [await harness.another() for _ in range(4)]

    got = await asyncio.gather(*(crowd(store, 7, limit=3) for store in stores * 3))

    assert sum(got) == (await counts(harness.store)).processing == 7


async def test_every_queue_has_a_limit_of_its_own(harness: Harness) -> None:
    for queue in ("a", "b", "c"):
        await enqueued(harness.store, 5, queue=queue)
    await leased(harness.store, 3, queue="c")
    shares = {"a": Share(60.0, 9, at_a_time=1), "b": Share(60.0, 9, at_a_time=2), "c": Share(60.0, 9)}

    jobs = await harness.store.lease(shares, 9, "w")

    assert sorted(job.queue for job in jobs) == ["a", "b", "b", "c", "c"]
    assert await harness.store.lease(shares, 9, "w") == []
