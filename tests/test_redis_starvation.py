"""Nobody starves behind priorities of Node's, of which there are two million: our lease has a bound for them, too."""

from collections.abc import AsyncIterator

import pytest
from support.redis import Redis

from unstuck.model import completed
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import enqueued, leased

pytestmark = pytest.mark.anyio
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


async def leased_one(harness: RedisHarness) -> str:
    [job] = await leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    return job.id


@pytest.mark.accepts("MQ-032")
async def test_a_job_of_the_lowest_priority_there_is_waits_for_less_than_twenty_minutes(
    harness: RedisHarness,
) -> None:
    """By a head start of a minute a point it stands behind our urgent ones for ten minutes more than our plain ones do."""
    await theirs(harness, 2**21 - 1, ago=18 * 60)
    await enqueued(harness.store, priority=9)
    assert await leased_one(harness) != "1", "it must not overtake before it has waited out their head start"
    assert await leased_one(harness) == "1"
    await theirs(harness, 2**21 - 1, ago=20 * 60)
    await enqueued(harness.store, priority=9)
    assert await leased_one(harness) == "2"


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
    for _ in range(12):
        await theirs(harness, *range(1, 200, 2))  # a hundred, and one is done
        if await leased_one(harness) == "1":
            return
    raise AssertionError("the job that waited for an hour was never run")
