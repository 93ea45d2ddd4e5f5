"""Queues on different servers of a Redis Cluster: one worker serves them, one master may die, nothing is passed by."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from support.node import Node
from support.redis import Redis
from support.redis_cluster import Cluster, outlives_a_master
from support.waiting import until_async
from support.work import burst

from unstuck import ConfigError, Filter, StoreUnavailable, Unstuck, open_store
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.operators import Event
from unstuck.protocol.outcome import Settled, completed, released
from unstuck.protocol.store import Store
from unstuck.stores.redis import client
from unstuck.stores.redis.cluster import SpreadStore
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import enqueued, leased, new, states

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]  # the first may have to install its guests


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
async def harness(cluster: Cluster) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(cluster.url, cluster=True, spread=True) as harness:
        yield harness


@pytest.fixture
def queues(cluster: Cluster, harness: RedisHarness) -> tuple[str, str]:
    """Two queues that different masters have."""
    first, *others = (f"q{number}" for number in range(20))
    master = cluster.master_of(harness.base(first))
    return first, next(name for name in others if cluster.master_of(harness.base(name)) is not master)


@pytest.mark.slow
async def test_one_worker_serves_queues_on_two_masters_and_goes_on_when_one_of_them_dies(
    cluster: Cluster, harness: RedisHarness, queues: tuple[str, str]
) -> None:
    await outlives_a_master(cluster, harness, queues)


async def test_the_best_ranks_of_all_queues_are_leased_first(
    harness: RedisHarness, queues: tuple[str, str]
) -> None:
    one, two = queues
    await harness.store.enqueue(
        [new(one, priority=0), new(two, priority=5), new(one, priority=9), new(two, priority=1)]
    )
    shares = {one: Share(60.0, 9), two: Share(60.0, 9)}

    jobs = await harness.store.lease(shares, 2, "w")
    assert sorted((job.queue, job.priority) for job in jobs) == sorted([(one, 9), (two, 5)])
    assert {job.priority for job in await harness.store.lease(shares, 9, "w")} == {0, 1}


async def test_an_idle_worker_wakes_up_for_each_of_its_queues(
    harness: RedisHarness, queues: tuple[str, str]
) -> None:
    for queue in queues:
        waiting = asyncio.create_task(harness.store.wait(queues, 60.0))
        await asyncio.sleep(0.1)
        await enqueued(harness.store, queue=queue)
        await asyncio.wait_for(waiting, 10.0)
        assert len(await leased(harness.store, queue=queue)) == 1


async def test_follow_up_jobs_reach_a_queue_of_another_server(
    harness: RedisHarness, queues: tuple[str, str]
) -> None:
    one, two = queues
    await enqueued(harness.store, queue=one)
    [job] = await leased(harness.store, queue=one)
    outcome = completed(job.lease, then=(new(one), new(two, payload={"n": 1}, priority=3)))

    assert await harness.store.settle([outcome]) == [Settled.APPLIED]
    assert await states(harness.store, one) == {"pending": 1, "completed": 1}
    [follow] = (await harness.store.find(Filter(queue=two))).jobs
    assert (follow.payload, follow.priority) == ({"n": 1}, 3)
    assert await harness.store.settle([outcome]) == [Settled.REPEATED]
    assert await states(harness.store, two) == {"pending": 1}


async def test_what_a_dead_worker_left_for_another_server_is_brought_there_by_a_reaper(
    harness: RedisHarness, queues: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = queues

    async def die(*_: object) -> None:
        raise StoreUnavailable("nobody there")

    with monkeypatch.context() as patch:
        patch.setattr(SpreadStore, "_deliver", die)
        await enqueued(harness.store, queue=one)
        [job] = await leased(harness.store, queue=one)
        await harness.store.settle([completed(job.lease, then=(new(two),))])
        assert await harness.store.tick("s", job.created_at, [new(two)])
    assert await states(harness.store, two) == {}

    await harness.store.reclaim(Recovery("reaper", 30.0, 10, queues=[one]))
    assert await states(harness.store, two) == {"pending": 2}
    await harness.store.reclaim(Recovery("reaper", 30.0, 10))
    assert await states(harness.store, two) == {"pending": 2}


async def pages(store: Store, limit: int) -> list[Job]:
    found: list[Job] = []
    cursor = None
    while True:
        page = await store.find(Filter(), limit, cursor)
        found += page.jobs
        if (cursor := page.cursor) is None:
            return found


async def test_a_listing_of_all_queues_passes_nobody_by(
    harness: RedisHarness, queues: tuple[str, str]
) -> None:
    refs = [ref for queue in queues for ref in await enqueued(harness.store, 10, queue=queue)]
    for queue in queues:  # each came in the same moment as one of the other queue
        mine = [ref.id for ref in refs if ref.queue == queue]
        places = {id_: 1000 + n for n, id_ in enumerate(mine)}
        await harness.client.zadd(f"{harness.base(queue)}unstuck:all", places)
    for limit in (1, 3, 7, 100):
        assert sorted(job.ref for job in await pages(harness.store, limit)) == sorted(refs)


async def test_an_event_of_a_queue_that_was_read_already_is_not_passed_by(
    harness: RedisHarness, queues: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = queues
    jobs = []
    for queue in queues:
        await enqueued(harness.store, queue=queue)
        jobs += await leased(harness.store, queue=queue)
    told, read = SpreadStore._events_of, asyncio.Event()

    async def slowly(self: SpreadStore, queue: str, behind: int, limit: int) -> tuple[list[Event], int]:
        if queue == two and not read.is_set():
            await read.wait()
            for job in jobs:  # first one of the queue that was read, then one of that which will be
                await harness.store.settle([released(job.lease)])
        answer = await told(self, queue, behind, limit)
        read.set()
        return answer

    monkeypatch.setattr(SpreadStore, "_events_of", slowly)
    first = await harness.store.events()
    then = await harness.store.events(first[-1].cursor if first else None)
    assert [event.queue for event in first + then] == [one, two]


async def test_an_enqueue_in_a_cluster_can_wait_for_replicas(
    cluster: Cluster, harness: RedisHarness, queues: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(f"{harness.url}&replicas=1") as store:
        jobs = [new(queue) for queue in queues]
        assert [answer.created for answer in await store.enqueue(jobs)] == [True, True]
        [replica] = cluster.replicas_of(harness.base(queues[0]))
        monkeypatch.setattr(client, "REPLICATED", 0.5)
        replica.pause()
        try:
            late = new(queues[0])
            with pytest.raises(StoreUnavailable, match="only 0 of 1 replicas"):
                await store.enqueue([late])
        finally:
            replica.resume()
            monkeypatch.undo()
        await until_async(cluster.complete, 60, "the cluster to be complete again")
        assert [answer.created for answer in await store.enqueue([late])] == [False]


async def test_node_finds_a_queue_by_its_name_in_braces(cluster: Cluster, harness: RedisHarness) -> None:
    where = (str(cluster.members[0].port), harness.prefix, "{mail}")
    said = await asyncio.to_thread(Node(), "cluster", *where, [{"task": "send", "data": {"to": "ann"}}])
    async with Unstuck(harness.url) as app:

        @app.task(queue="mail")
        async def send(to: str) -> str:
            return f"sent to {to}"

        await burst(app)

    [job] = (await harness.store.find(Filter(queue="mail"))).jobs
    assert (job.id, job.result) == (said["ids"][0], "sent to ann")
    assert (await asyncio.to_thread(Node(), "cluster", *where, []))["counts"]["completed"] == 1


async def test_workers_are_recorded_once_for_all_queues(
    harness: RedisHarness, queues: tuple[str, str]
) -> None:
    await harness.store.heartbeat(WorkerInfo(id="w", queues=queues), [])
    [worker] = (await harness.store.fleet()).workers
    assert (worker.id, worker.queues) == ("w", queues)


def ours_at(server: Redis) -> set[str]:
    """Connections of ours, by their numbers."""
    lines = server.command("CLIENT", "LIST").splitlines()
    return {line.split()[0].removeprefix("id=") for line in lines if " name=unstuck " in line}


async def test_a_store_closes_all_its_connections_also_after_one_was_cut(
    cluster: Cluster, harness: RedisHarness, queues: tuple[str, str]
) -> None:
    """The driver takes itself for closed when it has to look at the cluster anew, and would leave the others open."""
    one, two = (cluster.master_of(harness.base(queue)) for queue in queues)
    before = {server: ours_at(server) for server in (one, two)}
    async with open_store(harness.url) as store:
        for queue in queues:
            await enqueued(store, queue=queue)
        assert ours_at(two) > before[two]
        for number in ours_at(one) - before[one]:
            one.command("CLIENT", "KILL", "ID", number)
        with pytest.raises(StoreUnavailable):
            await enqueued(store, queue=queues[0])
    await until_async(lambda: ours_at(two) <= before[two], 10, "the connections to be closed")


async def test_names_with_braces_are_refused(harness: RedisHarness) -> None:
    for name in ("{a}", "}a", "a}b"):
        with pytest.raises(ConfigError, match="no braces"):
            await harness.store.enqueue([new(name)])


async def test_a_server_that_is_none_of_a_cluster_is_reported_to_be_none(redis7: Redis) -> None:
    with pytest.raises(ConfigError, match="remove cluster=yes from"):
        async with open_store(f"{redis7.url()}?cluster=yes"):
            pass


async def test_a_cluster_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="cannot be used now"):
        async with open_store("redis://:s3cret@127.0.0.1:1?cluster=yes"):
            pass
