"""A worker that waits for work on Redis is woken on every path that makes a job ready, and by nothing else."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest
from support.redis import Redis

from unstuck import Filter
from unstuck.protocol.job import Job, Ref
from unstuck.protocol.leases import Recovery
from unstuck.protocol.outcome import completed, released, retried
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.stores.redis import client
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import enqueued, leased, new, now, one_leased, trouble

pytestmark = pytest.mark.anyio

Act = Callable[[], Awaitable[object]]
Path = Callable[[RedisHarness], Awaitable[Act]]


@pytest.fixture
async def harness(redis_server: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis_server.url()) as harness:
        yield harness


async def enqueueing(harness: RedisHarness) -> Act:
    return lambda: enqueued(harness.store)


async def leaving_some(harness: RedisHarness) -> Act:
    await enqueued(harness.store, 2)
    return lambda: leased(harness.store)


async def making_due(harness: RedisHarness) -> Act:
    """The next lease finds that jobs have become due, and takes one of them."""
    await enqueued(harness.store, 2, delay=60.0)
    await harness.age(61.0)
    return lambda: leased(harness.store)


async def releasing(harness: RedisHarness) -> Act:
    job = await one_leased(harness.store)
    return lambda: harness.store.settle([released(job.lease)])


async def following_up(harness: RedisHarness) -> Act:
    job = await one_leased(harness.store)
    return lambda: harness.store.settle([completed(job.lease, then=(new(),))])


async def recovering(harness: RedisHarness) -> Act:
    await one_leased(harness.store, max_attempts=3)
    await harness.age(3600.0)
    return lambda: Reaper(harness.store).recover()


async def finding_a_lost_one(harness: RedisHarness) -> Act:
    [ref] = await enqueued(harness.store)
    await harness.client.zrem(f"{harness.prefix}:q:prioritized", ref.id)
    return lambda: harness.store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))


async def requeueing(harness: RedisHarness) -> Act:
    job = await one_leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    return lambda: harness.store.requeue(Filter(ids=(job.id,)))


async def starting_over(harness: RedisHarness) -> Act:
    job = await one_leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    return lambda: harness.store.enqueue([new(id=job.id, again=True)])


async def editing(harness: RedisHarness) -> Act:
    [ref] = await enqueued(harness.store, delay=60.0)
    return lambda: harness.store.edit([ref], run_at=now() - timedelta(seconds=1))


async def resuming(harness: RedisHarness) -> Act:
    await enqueued(harness.store)
    await harness.store.pause("q", "for a while")
    return lambda: harness.store.pause("q", None)


async def ticking(harness: RedisHarness) -> Act:
    return lambda: harness.store.tick("nightly", now(), [new()])


async def with_a_parent(harness: RedisHarness, child: Ref) -> None:
    """A flow of BullMQ's whose parent runs when this child has ended, however it did."""
    base = f"{harness.prefix}:q:"
    link = json.dumps({"id": "parent", "queueKey": base[:-1], "cpof": True})
    await harness.client.hset(
        f"{base}{child.id}", mapping={"parentKey": f"{base}parent", "parent": link, "opts": "{}"}
    )
    await harness.client.hset(f"{base}parent", mapping={"name": "whole", "data": "{}", "timestamp": "1"})
    await harness.client.sadd(f"{base}parent:dependencies", f"{base}{child.id}")
    await harness.client.zadd(f"{base}waiting-children", {"parent": 1})


async def completing_a_child(harness: RedisHarness) -> Act:
    [ref] = await enqueued(harness.store)
    await with_a_parent(harness, ref)
    [job] = await leased(harness.store)
    return lambda: harness.store.settle([completed(job.lease)])


async def cancelling_a_child(harness: RedisHarness) -> Act:
    [ref] = await enqueued(harness.store)
    await with_a_parent(harness, ref)
    return lambda: harness.store.cancel([ref])


async def markers(harness: RedisHarness) -> dict[bytes, float]:
    """The markers of the queue: member 0 is for jobs that are ready, member 1 has the time at which the next one is."""
    return dict(await harness.client.zrange(f"{harness.prefix}:q:marker", 0, -1, withscores=True))


@pytest.mark.parametrize(
    "path",
    [
        enqueueing, leaving_some, making_due, releasing, following_up, recovering, finding_a_lost_one, requeueing,
        starting_over, editing, resuming, ticking, completing_a_child, cancelling_a_child,
    ],
)  # fmt: skip
async def test_a_job_that_became_ready_adds_a_marker(harness: RedisHarness, path: Path) -> None:
    act = await path(harness)
    await harness.client.delete(f"{harness.prefix}:q:marker")  # another worker took it
    await act()

    assert b"0" in await markers(harness)
    assert len(await leased(harness.store)) == 1, "no job was ready"


async def later(store: Store, job: Job) -> object:
    return await store.settle([retried(job.lease, trouble(), 60.0)])


async def test_the_marker_of_a_job_that_is_ready_later_has_its_time(harness: RedisHarness) -> None:
    job = await one_leased(harness.store)
    began = time.time()
    await later(harness.store, job)

    [(member, due)] = (await markers(harness)).items()
    assert member == b"1"
    assert began + 55.0 < due / 1000 < time.time() + 65.0


async def test_a_paused_queue_has_no_marker(harness: RedisHarness) -> None:
    job = await one_leased(harness.store)
    await enqueued(harness.store)
    await harness.store.pause("q", "for a while")
    assert await markers(harness) == {}
    await enqueued(harness.store)
    await harness.store.settle([released(job.lease)])
    assert await markers(harness) == {}


async def test_jobs_of_a_paused_queue_do_not_end_a_wait(harness: RedisHarness) -> None:
    await enqueued(harness.store)
    await harness.store.pause("q", "for a while")
    began = time.monotonic()
    await harness.store.wait(["q"], 0.5)
    assert time.monotonic() - began >= 0.4


async def test_leasing_the_last_job_leaves_no_marker(harness: RedisHarness) -> None:
    await enqueued(harness.store)
    assert b"0" in await markers(harness)
    await leased(harness.store)
    assert await markers(harness) == {}


async def test_a_wait_is_not_cut_short_by_the_patience_for_other_answers(
    harness: RedisHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may take longer to answer a wait than it may take for other commands."""
    monkeypatch.setattr(client, "PATIENCE", 2.0)
    monkeypatch.setattr(client, "SLICE", 4.0)
    async with RedisHarness(harness.url.partition("?")[0]) as other:
        began = time.monotonic()
        await other.store.wait(["q"], 3.5)
        assert time.monotonic() - began >= 3.4
