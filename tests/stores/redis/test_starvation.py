"""The order is BullMQ's, and yet nobody starves behind its priorities, of which there are two million."""

import json
from collections.abc import AsyncIterator

import pytest
from support.bull import QUEUE, Bull
from support.redis import Redis

from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import completed
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import enqueued, leased

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests
SPAN = 2**32


@pytest.fixture
async def harness(redis7: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis7.url()) as harness:
        yield harness


async def theirs(harness: RedisHarness, *priorities: int, ago: float = 0.0) -> None:
    """A job of each priority, as BullMQ added them so many seconds ago."""
    base, (seconds, micro) = f"{harness.prefix}:q:", await harness.client.time()
    async with harness.client.pipeline() as together:
        for priority in priorities:
            number, turn = [await harness.client.incr(f"{base}{counter}") for counter in ("id", "pc")]
            added = round((seconds - ago) * 1000 + micro / 1000)
            facts = {"name": "send", "data": "{}", "priority": priority, "timestamp": added}
            together.hset(f"{base}{number}", mapping=facts)
            together.zadd(f"{base}prioritized", {str(number): priority * SPAN + turn})
        await together.execute()


async def leased_one(harness: RedisHarness, queue: str = "q") -> str:
    [job] = await leased(harness.store, queue=queue)
    await harness.store.settle([completed(job.lease)])
    return job.id


@pytest.mark.node("priority")
async def test_a_more_urgent_job_of_nodes_runs_before_less_urgent_ones_that_are_older(
    harness: RedisHarness, bull: Bull
) -> None:
    """A worker of BullMQ's has them in this order, too: by priority, then as they came."""
    first = await bull.add(*(("send", {}, {"priority": 2}) for _ in range(25)))
    await harness.store.lease({QUEUE: Share(60.0, 0)}, 1, "w")  # we know the queue from here on
    for id_ in first:
        await harness.client.hincrby(harness.base(QUEUE) + id_, "timestamp", -480_000)
    urgent, plain = await bull.add(("send", {}, {"priority": 1}), ("send", {}, {}))

    jobs = [await leased_one(harness, QUEUE) for _ in range(27)]

    assert jobs == [plain, urgent, *first]


@pytest.mark.accepts("MQ-032")
async def test_every_tenth_job_is_the_one_that_waited_longest_if_that_is_more_than_ten_minutes(
    harness: RedisHarness,
) -> None:
    await theirs(harness, 2**21 - 1, ago=11 * 60)
    await theirs(harness, 2**20, ago=12 * 60)
    await theirs(harness, 2**19, ago=9 * 60)
    urgent = [ref.id for ref in await enqueued(harness.store, 30, priority=9)]

    taken = [await leased_one(harness) for _ in range(30)]

    assert taken == [*urgent[:9], "2", *urgent[9:18], "1", *urgent[18:28]]


async def test_a_lease_of_only_new_jobs_does_not_take_the_longest_waiting_one_ahead_if_somebody_had_it_before(
    harness: RedisHarness,
) -> None:
    await theirs(harness, 300, 400, ago=11 * 60)
    await harness.client.hset(harness.base("q") + "1", mapping={"settled": "released 1"})
    urgent = [ref.id for ref in await enqueued(harness.store, 30, priority=9)]

    jobs = await harness.store.lease({"q": Share(60.0, 20, only_new=True)}, 20, "w")
    assert [job.id for job in jobs] == [*urgent[:9], "2", *urgent[9:19]]

    left = await leased(harness.store, 20)
    assert [job.id for job in left] == [*urgent[19:28], "1", *urgent[28:]]


async def test_the_turns_are_kept_in_a_large_lease(harness: RedisHarness) -> None:
    await theirs(harness, *(200, 300) * 2, ago=11 * 60)
    urgent = [ref.id for ref in await enqueued(harness.store, 30, priority=9)]

    taken = [job.id for job in await leased(harness.store, 25)]

    assert taken == [*urgent[:9], "1", *urgent[9:18], "2", *urgent[18:23]]
    assert len(await leased(harness.store, 25)) == 9, "all are taken, and each once"


async def test_a_job_counts_as_waiting_from_when_its_delay_was_over_or_it_last_ran(
    harness: RedisHarness,
) -> None:
    """BullMQ sets ``delay`` to 0 then, and leaves ``timestamp`` and the options as they were."""
    await theirs(harness, 200, 300, 400, ago=3600)
    base, hour = harness.base("q"), 3_600_000
    await harness.client.hset(f"{base}1", "opts", json.dumps({"delay": hour - 60_000}))
    now = int(await harness.client.hget(f"{base}2", "timestamp")) + hour
    await harness.client.hset(f"{base}2", "processedOn", str(now - 60_000))
    await enqueued(harness.store, 20, priority=9)

    taken = [await leased_one(harness) for _ in range(20)]

    assert [id_ for id_ in taken if len(id_) == 1] == ["3"]


async def test_a_lane_has_no_more_running_than_allowed_when_an_old_job_of_it_goes_ahead(
    harness: RedisHarness,
) -> None:
    store, share = harness.store, Share(60.0, 1, None, 1)
    old = await enqueued(store, lane="a")
    await harness.age(11 * 60)
    await enqueued(store, 12, priority=9, lane="a")
    await enqueued(store, 8, priority=9)
    for _ in range(9):
        [job] = await store.lease({"q": share}, 1, "w")
        await store.settle([completed(job.lease)])

    taken = await store.lease({"q": share._replace(limit=20)}, 20, "w")

    assert [job.ref for job in taken if job.lane == "a"] == old


async def test_lower_priorities_of_nodes_stand_behind_higher_ones(harness: RedisHarness) -> None:
    await theirs(harness, 2_000_000, 5000, 150, 120, 101)
    await enqueued(harness.store)
    ours, *rest = [await leased_one(harness) for _ in range(6)]
    assert rest == ["5", "4", "3", "2", "1"]
    assert len(ours) > 2


async def test_nobody_starves_behind_more_priorities_than_are_compared_at_a_time(
    harness: RedisHarness,
) -> None:
    await theirs(harness, 90_000, ago=3600)
    for _ in range(20):
        await theirs(harness, *range(1, 200, 2))  # a hundred, and one is done
        if await leased_one(harness) == "1":
            return
    raise AssertionError("the job that waited for an hour was never run")
