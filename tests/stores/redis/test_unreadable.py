"""Jobs on Redis whose fields somebody has damaged: each is put aside or goes on, and none holds up its neighbours."""

from collections.abc import AsyncIterator

import pytest
from support.redis import Redis

from unstuck import Filter, Status
from unstuck.operations.verify import broken_rules
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Category, Ref
from unstuck.protocol.leases import Beat, Recovery, Verdict
from unstuck.protocol.outcome import Settled, released
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased, states

pytestmark = pytest.mark.anyio

UNREADABLE = [
    ("opts", "null"),
    ("opts", "5"),
    ("opts", '{"attempts": [1]}'),
    ("data", "[" * 5000),
    ("timestamp", "abc"),
    ("timestamp", "nan"),
    ("run_at", "1e300"),
    ("timeout", "nan"),
    ("settled", "said 1"),
    ("atm", ""),
    ("atm", "9" * 30),
]


@pytest.fixture
async def harness(redis_server: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis_server.url()) as harness:
        yield harness


async def damage(harness: RedisHarness, ref: Ref, field: str, value: str | bytes) -> None:
    """Of a job whose options count, as they do if BullMQ has enqueued it."""
    key = f"{harness.prefix}:q:{ref.id}"
    await harness.client.hdel(key, "policy")
    await harness.client.hset(key, field, value)


@pytest.mark.parametrize(("field", "value"), UNREADABLE)
async def test_a_damaged_job_is_put_aside_when_it_is_leased(
    harness: RedisHarness, field: str, value: str
) -> None:
    store = harness.store
    [broken, fine] = await enqueued(store, 2)
    await damage(harness, broken, field, value)
    assert {job.ref for job in (await store.find(Filter())).jobs} == {broken, fine}

    assert [job.ref for job in await leased(store, 2)] == [fine]
    assert [event.type for event in await store.events(job=broken)] == ["quarantined", "alert"]
    job = await look(store, broken)
    assert job.error is not None
    assert (job.status, job.error.code, job.error.category) == (
        Status.FAILED,
        "unreadable",
        Category.PERMANENT,
    )
    assert [job.ref for job in (await store.find(Filter(code="unreadable"))).jobs] == [broken]


@pytest.mark.parametrize(("field", "value"), [*UNREADABLE, ("fence", "abc"), ("processedOn", "abc")])
async def test_a_job_that_was_damaged_while_it_ran_is_put_aside_when_it_is_recovered(
    harness: RedisHarness, field: str, value: str
) -> None:
    store = harness.store
    [broken, fine] = await enqueued(store, 2)
    await leased(store, 2)
    await harness.age(3600.0)
    await damage(harness, broken, field, value)

    assert [job.ref for job in (await store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))).jobs] == [
        fine
    ]
    assert await states(store) == {"processing": 1, "failed": 1}


async def test_what_can_be_read_of_a_damaged_job_is_shown(harness: RedisHarness) -> None:
    [ref] = await enqueued(harness.store, payload={"n": 1}, priority=5, lane="ann")
    before = await look(harness.store, ref)
    await damage(harness, ref, "opts", "null")
    await damage(harness, ref, "timeout", "soon")

    job = await look(harness.store, ref)
    assert (job.payload, job.task, job.priority, job.lane) == ({"n": 1}, "task", 5, "ann")
    assert (job.created_at, job.run_at) == (before.created_at, before.run_at)


async def test_options_that_are_an_empty_list_are_none(harness: RedisHarness) -> None:
    """PHP writes them so."""
    [ref] = await enqueued(harness.store)
    await damage(harness, ref, "opts", "[]")
    [job] = await leased(harness.store)
    assert (job.max_attempts, job.backoff) == (1, ())


async def test_options_beyond_all_bounds_are_cut(harness: RedisHarness) -> None:
    [ref] = await enqueued(harness.store)
    opts = '{"attempts": 1e300, "backoff": {"type": "exponential", "delay": 1e300}}'
    await damage(harness, ref, "opts", opts)
    [job] = await leased(harness.store)
    assert (job.max_attempts, set(job.backoff)) == (2**53, {365 * 86400.0})


async def test_a_delay_of_nodes_may_have_a_fraction(harness: RedisHarness) -> None:
    key = f"{harness.prefix}:q:1"
    facts = {"name": "send", "data": "{}", "timestamp": "1000", "delay": "500.25", "opts": "{}"}
    await harness.client.hset(key, mapping=facts)
    await harness.client.zadd(f"{harness.prefix}:q:delayed", {"1": 4096 * 1500})
    job = await look(harness.store, Ref("q", "1"))
    assert job.run_at.timestamp() == 1.50025


@pytest.mark.parametrize("value", ["", "abc", "nan", "1e300"])
@pytest.mark.parametrize(
    "field", ["timestamp", "run_at", "priority", "atm", "ats", "fence", "crashes", "settled"]
)
async def test_no_step_fails_by_a_damaged_number(harness: RedisHarness, field: str, value: str) -> None:
    """Scripts reckon with them before anybody reads the job."""
    store = harness.store
    [running, waiting] = await enqueued(store, 2)
    await leased(store)
    for ref in (running, waiting):
        await damage(harness, ref, field, value)
    await store.find(Filter())
    await store.count()
    await broken_rules(store)
    assert await store.edit([waiting], priority=3) == 1
    assert await store.cancel([running, waiting]) == 2
    assert await states(store) == {"failed": 2}


@pytest.mark.parametrize(("field", "value"), [("fence", "1e300"), ("fence", "inf"), ("ats", "abc")])
async def test_a_lease_is_granted_whatever_is_left_of_the_last_one(
    harness: RedisHarness, field: str, value: str
) -> None:
    store = harness.store
    [ref] = await enqueued(store)
    await damage(harness, ref, field, value)
    [job] = await leased(store)
    assert await store.settle([released(job.lease)]) == [Settled.APPLIED]


async def test_a_job_whose_starts_are_lost_is_recovered(harness: RedisHarness) -> None:
    store, job = harness.store, await one_leased(harness.store)
    await harness.age(3600.0)
    await damage(harness, job.ref, "ats", "abc")
    [taken] = (await store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))).jobs
    assert await store.settle([released(taken.lease)]) == [Settled.APPLIED]


async def test_a_damaged_fence_costs_its_own_lease_only(harness: RedisHarness) -> None:
    store, (broken, fine) = harness.store, [await one_leased(harness.store) for _ in range(2)]
    await damage(harness, broken.ref, "fence", "abc")
    beats = [Beat(job.lease, 60.0) for job in (broken, fine)]
    pulse = await store.heartbeat(WorkerInfo(id="w", queues=("q",)), beats)
    assert pulse.verdicts == {broken.lease: Verdict.LOST, fine.lease: Verdict.HELD}
    assert pulse.strangers == []


async def test_an_event_that_is_no_text_is_reported_as_far_as_it_is(harness: RedisHarness) -> None:
    [ref] = await enqueued(harness.store)
    await damage(harness, ref, "defa", b"caf\xe9")
    assert await leased(harness.store) == []
    assert [event.data["details"]["message"] for event in await harness.store.events()] == ["caf\ufffd"] * 2


async def test_a_job_without_a_name_is_put_aside_and_not_lost(harness: RedisHarness) -> None:
    store = harness.store
    [nameless, unlisted, cancelled, late] = await enqueued(store, 4, payload={"n": 1})
    for ref in (nameless, unlisted, cancelled, late):
        await harness.client.hdel(f"{harness.prefix}:q:{ref.id}", "name")
    await harness.client.zrem(f"{harness.prefix}:q:prioritized", unlisted.id)
    assert await store.cancel([cancelled]) == 1
    assert await store.edit([late], priority=1) == 1
    await store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))
    [fine] = await enqueued(store)

    assert [job.ref for job in await leased(store, 5)] == [fine]
    assert await states(store) == {"processing": 1, "failed": 4}
    assert [event.type for event in await store.events(job=nameless)] == ["quarantined", "alert"]
    assert (await look(store, nameless)).payload == {"n": 1}
    assert await broken_rules(store) == []
