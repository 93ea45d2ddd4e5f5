"""Queues on Redis that somebody has damaged: nothing of it holds up others, and it is told what it was."""

from collections.abc import AsyncIterator

import pytest
from support.redis import Redis

from unstuck import Filter, Jobs, Status, StoreError, UnknownJob, UnreadableJob
from unstuck.operations.verify import broken_rules
from unstuck.protocol.leases import Recovery
from unstuck.protocol.outcome import Settled, completed, failed, released, retried
from unstuck.recovery.reaper import Reaper
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import enqueued, leased, look, new, one_leased, states, trouble

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(redis_server: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis_server.url()) as harness:
        yield harness


async def test_what_others_removed_is_forgotten_with_its_events(harness: RedisHarness) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([released(job.lease)])
    await harness.client.delete(f"{harness.prefix}:q:{job.id}")
    await harness.client.zrem(f"{harness.prefix}:q:prioritized", job.id)

    assert (await harness.store.find(Filter())).jobs == []
    assert await harness.store.events() == []
    assert await broken_rules(harness.store) == []


async def test_what_we_delete_takes_its_events_with_it(harness: RedisHarness) -> None:
    jobs = [await one_leased(harness.store) for _ in range(2)]
    await harness.store.settle([failed(job.lease, trouble()) for job in jobs])
    assert {event.job for event in await harness.store.events()} == {job.id for job in jobs}

    assert await harness.store.delete(Filter(ids=(jobs[0].id,))) == 1
    assert {event.job for event in await harness.store.events()} == {jobs[1].id}


async def test_entries_without_a_job_hold_up_nobody(harness: RedisHarness) -> None:
    [ref] = await enqueued(harness.store)
    await harness.client.zadd(f"{harness.prefix}:q:prioritized", {"ghost": 1})
    await harness.client.lpush(f"{harness.prefix}:q:active", "lost")
    assert len(await broken_rules(harness.store)) == 2

    assert [job.ref for job in await leased(harness.store, 5)] == [ref]
    await harness.store.reclaim(Recovery("reaper", 30.0, 10))
    assert await broken_rules(harness.store) == []


async def test_a_job_whose_data_is_no_json_is_put_aside(harness: RedisHarness) -> None:
    [broken, fine] = await enqueued(harness.store, 2)
    await harness.client.hset(f"{harness.prefix}:q:{broken.id}", "data", "{not json")

    assert [job.ref for job in await leased(harness.store, 2)] == [fine]
    assert (await look(harness.store, broken)).payload == "{not json"
    assert (await states(harness.store)) == {"processing": 1, "failed": 1}
    assert "quarantined" in [event.type for event in await harness.store.events(job=broken)]


async def test_a_deferred_failure_of_bullmqs_is_carried_out_unrun(harness: RedisHarness) -> None:
    [ref] = await enqueued(harness.store)
    await harness.client.hset(f"{harness.prefix}:q:{ref.id}", "defa", "job stalled more than allowable limit")

    assert await leased(harness.store) == []
    job = await look(harness.store, ref)
    assert job.status is Status.FAILED
    assert job.error is not None
    assert job.error.message == "job stalled more than allowable limit"
    assert await broken_rules(harness.store) == []


async def test_a_script_that_cannot_be_carried_out_is_the_stores_error(harness: RedisHarness) -> None:
    await harness.client.set(f"{harness.prefix}:q:prioritized", "not a set")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await leased(harness.store)


@pytest.mark.parametrize(
    "name", ["active", "unstuck:leases", "completed", "unstuck:counters", "metrics:completed", "marker"]
)
async def test_a_step_that_fails_half_way_loses_no_job(harness: RedisHarness, name: str) -> None:
    """A server cannot take back what a script wrote before it failed: what is written must be enough to go on."""
    store, key = harness.store, f"{harness.prefix}:q:{name}"
    [ref] = await enqueued(store)
    await harness.client.set(key, "of another kind")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await store.settle([completed(job.lease) for job in await leased(store)])
    await harness.client.delete(key)

    await harness.age(3600.0)
    await Reaper(store).recover()
    await store.settle([completed(job.lease) for job in await leased(store)])
    assert (await look(store, ref)).status is Status.COMPLETED
    assert await states(store) == {"completed": 1}
    assert await broken_rules(store) == []


async def told(harness: RedisHarness) -> list[str]:
    return [finding.what for finding in await harness.store.checkup() if finding.level != "ok"]


async def test_a_checkup_reports_what_is_stranded_also_in_queues_of_others(harness: RedisHarness) -> None:
    """A queue that only BullMQ used, with one job of each kind, and one that is well."""
    base, put = f"{harness.prefix}:theirs", harness.client
    await put.hset(f"{base}:meta", mapping={"version": "bullmq:6.0.0", "concurrency": "3"})
    for id_ in ("well", "held", "stalled", "waits", "lost", "late", "child", "parent"):
        await put.hset(f"{base}:{id_}", mapping={"name": "send", "data": "{}", "timestamp": "1"})
    await put.lpush(f"{base}:active", "well", "held", "stalled")
    await put.lpush(f"{base}:wait", "waits", "ghost")
    await put.zadd(f"{base}:delayed", {"late": 4096})
    await put.zadd(f"{base}:failed", {"child": 1})
    await put.zadd(f"{base}:waiting-children", {"parent": 1})
    await put.sadd(f"{base}:parent:dependencies", f"{base}:child")
    for id_ in ("well", "waits"):
        await put.set(f"{base}:{id_}:lock", "token", px=60_000)
    for id_ in ("held", "child"):
        await put.set(f"{base}:{id_}:lock", "token")

    assert await told(harness) == [
        "2 jobs wait in queue theirs, and there is no sign of a worker that takes it",
        "queue theirs runs 3 jobs, which is its limit: no more jobs of it are started",
        "1 jobs of queue theirs are stalled: they are active, but no worker holds them: stalled",
        "1 jobs of queue theirs are held by a lock that never ends: held",
        "1 entries of queue theirs have no job: it was removed by hand, evicted or lost: ghost",
        "1 jobs of queue theirs are in no list: no worker will ever take them: lost",
        "1 delayed jobs of queue theirs were due more than a minute ago: late",
        "1 jobs of queue theirs wait for children that failed or are gone: parent",
        "1 locks of queue theirs belong to jobs that are not active, and never expire: child",
        "1 locks of queue theirs belong to jobs that are not active: waits",
    ]
    assert await harness.client.exists(f"{base}:unstuck:all") == 0, "a look must not write"


async def test_a_paused_queue_of_others_and_one_in_use_are_not_reported_to_lack_workers(
    harness: RedisHarness,
) -> None:
    for queue in ("one", "two"):
        base = f"{harness.prefix}:{queue}"
        await harness.client.hset(f"{base}:1", mapping={"name": "send", "data": "{}", "timestamp": "1"})
        await harness.client.lpush(f"{base}:wait", "1")
    await harness.client.hset(f"{harness.prefix}:one:meta", "paused", "1")
    await harness.client.set(f"{harness.prefix}:two:stalled-check", "1", px=30_000)

    assert await told(harness) == ["queue one is paused"]


async def test_a_lease_of_ours_holds_a_job_also_without_its_lock(harness: RedisHarness) -> None:
    job = await one_leased(harness.store)
    await harness.client.delete(f"{harness.prefix}:q:{job.id}:lock")
    assert await told(harness) == []


async def test_what_a_live_worker_of_others_runs_is_not_adopted_however_long_it_takes(
    harness: RedisHarness,
) -> None:
    base = f"{harness.prefix}:q"
    facts = {"name": "send", "data": "{}", "timestamp": "1", "processedOn": "2"}
    await harness.client.hset(f"{base}:1", mapping=facts)
    await harness.client.lpush(f"{base}:active", "1")
    await harness.client.set(f"{base}:1:lock", "token", px=60_000)
    assert (await harness.store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"], grace=60.0))).adopted == 0

    await harness.client.delete(f"{base}:1:lock")
    assert (await harness.store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"], grace=60.0))).adopted == 1


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("ZADD {q}:failed 1 {id}", "a job is in one place"),
        ("HSET {q}:{id} finishedOn 1", "finished means finished_at, and nothing else does"),
        ("HSET {q}:{id} crashes 1", "crashes are attempts"),
        ("HSET {q}:{id} settled released~1 fence 0", "no lease was ended that was not granted"),
        ("HSET {q}:{id} priority 10", "a place in line is that of its priority"),
        ("HSET {q}:{id} run_at 9999999999999", "those that were due first stand first"),
        ("ZADD {q}:unstuck:leases 1 nobody", "only a processing job has an owner or a lease"),
        ("DEL {q}:{id}", "an entry has its job (prioritized)"),
    ],
)
async def test_verify_names_the_rule_that_is_broken(harness: RedisHarness, command: str, rule: str) -> None:
    first, _ = await enqueued(harness.store, 2)
    assert await broken_rules(harness.store) == []
    said = command.format(q=f"{harness.prefix}:q", id=first.id).split()
    await harness.client.execute_command(*(word.replace("~", " ") for word in said))

    assert rule in {line.partition(": ")[0] for line in await broken_rules(harness.store)}


async def removed(harness: RedisHarness) -> list[object]:
    return [
        event.data["details"]["entry"]
        for event in await harness.store.events()
        if event.type == "reaper:removed"
    ]


async def test_an_entry_without_a_job_is_removed_with_an_event_wherever_it_is(harness: RedisHarness) -> None:
    """Bad input 69: one that waits, one that runs for another, and one that runs for us and lost its job meanwhile."""
    held = await one_leased(harness.store)
    await harness.client.delete(f"{harness.prefix}:q:{held.id}")
    await harness.client.zadd(f"{harness.prefix}:q:prioritized", {"waits": 1})
    await harness.client.lpush(f"{harness.prefix}:q:wait", "plain")
    await harness.client.lpush(f"{harness.prefix}:q:active", "runs")

    assert await leased(harness.store, 5) == []
    await harness.age(3600.0)
    assert (await harness.store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))).jobs == []

    assert sorted(map(str, await removed(harness))) == sorted(["plain", "runs", "waits", held.id])
    assert await states(harness.store) == {}
    assert await broken_rules(harness.store) == []


async def test_a_job_of_which_only_the_entry_is_left_is_reported_and_removed_long_before_it_is_due(
    harness: RedisHarness, caplog: pytest.LogCaptureFixture
) -> None:
    store, jobs = harness.store, Jobs(harness.store)
    done = (await one_leased(store)).ref
    await store.settle([failed((await look(store, done)).lease, trouble())])
    lost = (await one_leased(store)).ref
    await store.settle([retried((await look(store, lost)).lease, trouble(), 1800.0)])
    [nameless, kept] = await enqueued(store, 2, delay=1800.0)
    [waits] = await enqueued(store)
    assert {event.job for event in await store.events()} == {done.id, lost.id}
    await harness.client.delete(f"{harness.prefix}:q:{lost.id}")
    for ref in (done, waits):
        await harness.client.hdel(f"{harness.prefix}:q:{ref.id}", "name", "data", "error_at")
    await harness.client.hdel(f"{harness.prefix}:q:{nameless.id}", "name")

    told = f"job '{lost.id}' of queue 'q' cannot be read (only its entry is left: its data was evicted or deleted): enqueue it again"
    for reading in (jobs.get, jobs.explain):
        with pytest.raises(UnreadableJob) as caught:
            await reading(lost.id)
        assert str(caught.value) == told
    assert [job.ref for job in (await jobs.find(Filter())).jobs] == [kept, nameless]
    assert f"{told}; it is left out" in caplog.messages
    page = await jobs.find(Filter(), limit=1)
    assert (page.jobs, page.cursor is None) == ([], False)
    assert [job.ref for job in (await jobs.find(Filter(), cursor=page.cursor)).jobs] == [kept, nameless]

    await store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))

    assert sorted(map(str, await removed(harness))) == sorted([done.id, lost.id, waits.id])
    with pytest.raises(UnknownJob):
        await jobs.get(lost.id)
    assert await states(store) == {"pending": 2}
    assert await harness.client.hget(f"{harness.prefix}:q:{nameless.id}", "data") is not None
    assert await broken_rules(store) == []


@pytest.mark.parametrize("place", ["late", "waits", "runs", "failed"])
@pytest.mark.parametrize("stub", [False, True])
async def test_a_job_that_is_enqueued_again_because_its_data_was_lost_runs_once(
    harness: RedisHarness, place: str, stub: bool
) -> None:
    """Of the first one an entry is left, and after a promotion a hash without a name, too."""
    store = harness.store
    [ref] = await enqueued(store, key="order-1", delay=30.0 if place == "late" else 0.0)
    if place in ("runs", "failed"):
        [old] = await leased(store)
    if place == "failed":
        await store.settle([failed(old.lease, trouble())])
    await harness.client.delete(f"{harness.prefix}:q:{ref.id}")
    if stub:
        await harness.client.hset(f"{harness.prefix}:q:{ref.id}", "delay", 0)

    assert [answer.created for answer in await store.enqueue([new(key="order-1")])] == [True]
    [job] = await leased(store, 5)
    if place == "runs":
        assert await store.settle([completed(old.lease)]) == [Settled.LOST]
    assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]
    await harness.age(60.0)

    assert (job.ref, await leased(store, 5)) == (ref, [])
    assert await states(store) == {"completed": 1}
    assert await broken_rules(store) == []


async def test_what_has_lost_its_data_is_not_counted_as_retried(harness: RedisHarness) -> None:
    jobs = Jobs(harness.store)
    lost, kept = [await one_leased(harness.store) for _ in range(2)]
    await harness.store.settle([failed(job.lease, trouble()) for job in (lost, kept)])
    await harness.client.delete(f"{harness.prefix}:q:{lost.id}")

    assert await jobs.retry_failed_jobs("q") == 1
    assert [job.ref for job in await leased(harness.store, 5)] == [kept.ref]


async def a_minute_passes(harness: RedisHarness) -> None:
    """Until a queue is swept again."""
    await harness.client.delete(f"{harness.prefix}:q:unstuck:swept")


async def test_what_is_left_of_a_job_goes_soon_after_its_entry(
    harness: RedisHarness,
) -> None:
    """A lease does not search for events: it leaves that to the next look."""
    store = harness.store
    waits, runs = [await one_leased(store) for _ in range(2)]
    await store.settle([retried(waits.lease, trouble(), 60.0), released(runs.lease)])
    assert [job.ref for job in await leased(store)] == [runs.ref]
    for job in (waits, runs):
        await harness.client.delete(f"{harness.prefix}:q:{job.id}")
    await harness.age(3600.0)
    assert await leased(store) == []  # the one that is due now has a hash again: where it stood in line
    await store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))
    await a_minute_passes(harness)
    await store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))

    assert await broken_rules(store) == []
    assert {event.job for event in await store.events()} == {None}
    for job in (waits, runs):
        assert await harness.client.exists(f"{harness.prefix}:q:{job.id}") == 0


async def test_a_sweep_goes_on_behind_the_last_job_that_it_looked_at(harness: RedisHarness) -> None:
    """What it removes moves those behind it up."""
    refs = await enqueued(harness.store, 1010, delay=1800.0)
    lost = [*refs[:5], refs[1002]]
    await harness.client.delete(*(f"{harness.prefix}:q:{ref.id}" for ref in lost))

    await harness.store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))
    assert len(await removed(harness)) == 5
    await a_minute_passes(harness)
    await harness.store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))
    assert set(await removed(harness)) == {ref.id for ref in lost}


async def test_a_job_that_is_in_no_list_gets_its_place_in_line_again(harness: RedisHarness) -> None:
    """Bad input 69: the hash is there, but nothing leads to it."""
    [first] = await enqueued(harness.store)
    await harness.age(1.0)
    [lost] = await enqueued(harness.store)
    await harness.age(1.0)
    [last] = await enqueued(harness.store)
    [late] = await enqueued(harness.store, delay=60.0)
    assert await harness.client.zrem(f"{harness.prefix}:q:prioritized", lost.id)
    await harness.client.lpush(f"{harness.prefix}:q:paused", late.id)  # as a BullMQ before 6 has it
    await harness.client.zrem(f"{harness.prefix}:q:delayed", late.id)
    assert len((await harness.store.find(Filter(queue="q"))).jobs) == 4  # a look does not forget it

    await harness.store.reclaim(Recovery("reaper", 30.0, 10, queues=["q"]))

    assert [event.type for event in await harness.store.events(job=lost)] == ["reaper:adopted"]
    assert [job.ref for job in await leased(harness.store, 5)] == [first, lost, last]
    assert await broken_rules(harness.store) == []
