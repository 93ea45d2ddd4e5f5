"""Who waits for work on Redis is woken on every path that makes a job ready, and by nothing else."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest
from support.redis import Redis

from unstuck import Filter
from unstuck.model import Job, Ref, completed, released, retried
from unstuck.reaper import Reaper
from unstuck.store import Store
from unstuck.stores.redis import lines
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
    return lambda: harness.store.reclaim(["q"], 30.0, 10, "reaper")


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
    return lambda: harness.store.resume("q")


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


async def rung(harness: RedisHarness) -> dict[bytes, float]:
    """What the bell says: member 0 is for work that is ready, 1 has the time of the next that is not."""
    return dict(await harness.client.zrange(f"{harness.prefix}:q:marker", 0, -1, withscores=True))


@pytest.mark.parametrize(
    "path",
    [
        enqueueing, leaving_some, making_due, releasing, following_up, recovering, finding_a_lost_one, requeueing,
        starting_over, editing, resuming, ticking, completing_a_child, cancelling_a_child,
    ],
)  # fmt: skip
async def test_the_bell_rings_for_what_became_ready(harness: RedisHarness, path: Path) -> None:
    act = await path(harness)
    await harness.client.delete(f"{harness.prefix}:q:marker")  # somebody has heard it
    await act()

    assert b"0" in await rung(harness)
    assert len(await leased(harness.store)) == 1, "there was nothing to ring for"


async def later(store: Store, job: Job) -> object:
    return await store.settle([retried(job.lease, trouble(), 60.0)])


async def test_for_what_is_ready_later_the_bell_tells_when(harness: RedisHarness) -> None:
    job = await one_leased(harness.store)
    began = time.time()
    await later(harness.store, job)

    [(member, due)] = (await rung(harness)).items()
    assert member == b"1"
    assert began + 55.0 < due / 1000 < time.time() + 65.0


async def test_a_paused_queue_does_not_ring(harness: RedisHarness) -> None:
    job = await one_leased(harness.store)
    await enqueued(harness.store)
    await harness.store.pause("q", "for a while")
    assert await rung(harness) == {}
    await enqueued(harness.store)
    await harness.store.settle([released(job.lease)])
    assert await rung(harness) == {}


async def test_who_waits_for_a_paused_queue_is_not_sent_for_its_jobs(harness: RedisHarness) -> None:
    await enqueued(harness.store)
    await harness.store.pause("q", "for a while")
    began = time.monotonic()
    await harness.store.wait(["q"], 0.5)
    assert time.monotonic() - began >= 0.4


async def test_who_took_the_last_job_leaves_no_bell_behind(harness: RedisHarness) -> None:
    await enqueued(harness.store)
    assert b"0" in await rung(harness)
    await leased(harness.store)
    assert await rung(harness) == {}


async def test_a_wait_is_not_cut_short_by_the_patience_for_other_answers(
    harness: RedisHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was asked to be silent for longer than a connection otherwise is waited for."""
    monkeypatch.setattr(lines, "PATIENCE", 2.0)
    monkeypatch.setattr(lines, "SLICE", 4.0)
    async with RedisHarness(harness.url.partition("?")[0]) as other:
        began = time.monotonic()
        await other.store.wait(["q"], 3.5)
        assert time.monotonic() - began >= 3.4
