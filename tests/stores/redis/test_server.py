"""What becomes of jobs when the server dies, freezes or is full; and servers that are refused."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.redis import FLAVOURS, Redis
from support.waiting import until_async
from support.work import at_work

from unstuck import ConfigError, StoreUnavailable, Unstuck, open_store
from unstuck.operations import health
from unstuck.operations.verify import broken_rules
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Ref
from unstuck.protocol.leases import Beat, Recovery, Share
from unstuck.protocol.outcome import Settled, completed
from unstuck.protocol.store import Store
from unstuck.stores.redis import client
from unstuck.testing import RedisHarness
from unstuck.testing.conformance.given import counts, enqueued, leased, new, one_leased, states

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(redis_server: Redis) -> AsyncIterator[RedisHarness]:
    async with RedisHarness(redis_server.url()) as harness:
        yield harness


async def restart(server: Redis) -> None:
    await asyncio.to_thread(server.kill9)
    await asyncio.to_thread(server.start)


async def test_what_was_acknowledged_survives_a_killed_server(
    harness: RedisHarness, redis_server: Redis
) -> None:
    await enqueued(harness.store, 50)
    held, done = await leased(harness.store, 2)
    await harness.store.settle([completed(done.lease, "kept")])

    await restart(redis_server)

    assert await states(harness.store) == {"pending": 48, "processing": 1, "completed": 1}
    assert await harness.store.settle([completed(done.lease, "kept"), completed(held.lease)]) == [
        Settled.REPEATED,
        Settled.APPLIED,
    ]
    assert await broken_rules(harness.store) == []


async def test_a_worker_consumes_again_by_itself_after_a_restart(
    harness: RedisHarness, redis_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "IDLE", 1.5)  # instead of 30 s
    async with Unstuck(harness.url) as app:

        @app.task
        async def work(n: int) -> int:
            return n

        async with at_work(app) as worker:
            assert await (await work.enqueue(1)).result(10) == 1
            await asyncio.to_thread(redis_server.kill9)
            await until_async(
                lambda: not worker.get_health_status().consuming,
                20,
                "the worker to say that it does not consume",
            )
            await asyncio.to_thread(redis_server.start)

            async def again() -> int:
                try:  # longer than a worker waits between two tries, or one that sleeps would be taken for dead
                    return await (await work.enqueue(2)).result(20)
                except StoreUnavailable:
                    return 0

            assert await until_async(again, 30, "a job to be done again") == 2
            await until_async(
                lambda: worker.get_health_status().consuming, 20, "the worker to say that it consumes"
            )


async def test_a_frozen_server_is_unavailable_and_then_again_there(
    harness: RedisHarness, redis_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 2.0)  # instead of 20 s, but enough for a server that is only busy
    async with open_store(harness.url) as store:
        await enqueued(store)
        redis_server.pause()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="cannot be used now"):
            await leased(store)
        assert time.monotonic() - began < 10.0
        redis_server.resume()

        # The lease may have been granted without an answer: then it is named as a stranger, not lost.
        assert sum((await states(store)).values()) == 1


async def test_nobody_there_is_reported_with_the_address_and_without_the_password() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        async with open_store("redis://ann:s3cret@127.0.0.1:1/0"):
            pass
    assert "127.0.0.1" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_a_wrong_password_and_a_missing_database_are_settings() -> None:
    with Redis("redis", settings={"requirepass": "right"}) as server:
        with pytest.raises(ConfigError, match="refuses us"):
            async with open_store(f"redis://:wr0ng@127.0.0.1:{server.port}/0"):
                pass
        with pytest.raises(ConfigError, match="refuses us"):
            async with open_store(f"redis://:right@127.0.0.1:{server.port}/99"):
                pass
        async with open_store(f"redis://:right@127.0.0.1:{server.port}/1") as store:
            await enqueued(store)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, "CONFIG SET maxmemory-policy noeviction"),
        ({"appendonly": "no", "save": ""}, "CONFIG SET appendonly yes"),
        ({"cluster-enabled": "yes", "databases": "1"}, "add cluster=yes"),
    ],
    ids=["eviction", "memory only", "cluster"],
)
async def test_a_server_that_loses_jobs_is_refused_with_the_command_that_helps(
    settings: dict[str, str], said: str
) -> None:
    with Redis("redis", settings=settings) as server:
        async with open_store(server.url()) as store:
            with pytest.raises(ConfigError, match=said):
                await store.migrate()
            assert "failure" in [finding.level for finding in await store.checkup()]
        async with open_store(f"{server.url()}?careless=yes") as store:
            await store.migrate()


@asynccontextmanager
async def said_to_be(**facts: str) -> AsyncIterator[str]:
    """The URL of a server that says this of itself, tells no settings, and can do nothing else."""
    info = "".join(f"{name}:{value}\r\n" for name, value in facts.items())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            words = [
                (await reader.readline(), await reader.readline())[1].strip() for _ in range(int(head[1:]))
            ]
            said = {b"INFO": f"${len(info)}\r\n{info}\r\n", b"CONFIG": "-ERR unknown command\r\n"}
            writer.write(said.get(words[0], "+OK\r\n").encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"


async def test_a_server_that_is_too_old_is_refused() -> None:
    """Bad input 75. There is none so old to be had: this one says that it is, and nothing else of note."""
    fine = {"maxmemory_policy": "noeviction", "aof_enabled": "1", "role": "master"}
    async with said_to_be(redis_version="6.0.16", **fine) as url:
        async with open_store(url) as store:
            with pytest.raises(ConfigError, match=r"Redis 6\.0\.16 is too old\. use Redis 6\.2 or newer"):
                await store.migrate()
        async with open_store(f"{url}?careless=yes") as store:
            await store.migrate()


async def test_what_a_managed_server_does_not_report_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async with said_to_be(redis_version="7.2.0") as url, open_store(url) as store:
        await store.migrate()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.partition(" (")[0] for text in told] == [
        "it is not known whether the server removes keys when its memory is full",
        "it is not known whether the server writes to its disk",
    ]


async def test_a_server_on_this_host_can_be_reached_by_its_socket() -> None:
    with Redis("redis", settings={"unixsocket": "redis.sock"}) as server:
        async with open_store(f"unix://{server.data_dir}/redis.sock?db=1&prefix=other") as store:
            await store.migrate()
            await enqueued(store)
        assert "other:q:meta" not in server.command("KEYS", "*"), "it is not in the database that was named"


async def test_lanes_hold_even_if_others_took_jobs_and_put_others_there(harness: RedisHarness) -> None:
    first, second, third = await enqueued(harness.store, 3, lane="a")
    line = f"{harness.prefix}:q:prioritized"
    assert [job.ref for job in await harness.store.lease({"q": Share(60.0, 1, None, 9)}, 1, "w")] == [first]
    score = await harness.client.zscore(line, second.id)
    await harness.client.zrem(line, second.id)  # a worker of BullMQ's takes one,
    await harness.client.lpush(f"{harness.prefix}:q:active", second.id)
    [other] = await enqueued(harness.store)
    await harness.client.zrem(f"{harness.prefix}:q:unstuck:lane", other.id)  # and another comes back by it
    await harness.client.zadd(line, {other.id: score})

    jobs = await harness.store.lease({"q": Share(60.0, 9, None, 9)}, 9, "w")
    assert {job.ref for job in jobs} == {third, other}


async def test_an_enqueue_can_wait_for_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        Redis("redis") as server,
        Redis("redis", settings={"replicaof": f"127.0.0.1 {server.port}"}) as replica,
    ):
        await until_async(
            lambda: "master_link_status:up" in replica.command("INFO"), 20, "the replica to follow"
        )
        async with open_store(f"{server.url()}?replicas=1") as store:
            job = new()
            assert [answer.created for answer in await store.enqueue([job])] == [True]
            assert f"bull:q:{job.id}" in replica.command("KEYS", "bull:q:*")

            monkeypatch.setattr(client, "REPLICATED", 0.5)
            replica.pause()
            late = new()
            with pytest.raises(StoreUnavailable, match="only 0 of 1 replicas"):
                await store.enqueue([late])
            replica.resume()
            monkeypatch.undo()
            assert [answer.created for answer in await store.enqueue([late])] == [False]


async def test_settings_that_may_lose_the_last_second_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with Redis("redis", settings={"appendfsync": "everysec"}) as server, caplog.at_level(logging.WARNING):
        async with open_store(server.url()) as store:
            await store.migrate()
    assert any("appendfsync is everysec" in record.getMessage() for record in caplog.records)


async def test_where_settings_may_not_be_asked_for_the_rest_is_read_from_info() -> None:
    with Redis("redis", settings={"rename-command": "CONFIG forbidden"}) as server:
        async with open_store(server.url()) as store:
            await store.migrate()
            assert "failure" not in [finding.level for finding in await store.checkup()]


async def fill(store: Store, acknowledged: list[Ref]) -> None:
    for _ in range(200):
        jobs = [new(payload="x" * 50_000) for _ in range(10)]
        acknowledged += [answer.ref for answer in await store.enqueue(jobs)]


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_full_server_refuses_new_jobs_loudly_and_lets_the_others_be_done(flavour: str) -> None:
    with Redis(flavour, settings={"maxmemory": "6mb"}) as server:
        async with RedisHarness(server.url()) as harness:
            job, acknowledged = await one_leased(harness.store), list[Ref]()
            await enqueued(harness.store)
            with pytest.raises(StoreUnavailable, match="maxmemory"):
                await fill(harness.store, acknowledged)
            before = await counts(harness.store)
            assert before.pending == 1 + len(acknowledged) > 1, "a step was carried out in part"
            await harness.store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, 60.0)])
            assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]
            assert len(await leased(harness.store)) == 1
            after = await counts(harness.store)
            assert (after.completed, after.pending) == (1, before.pending - 1)
            assert await broken_rules(harness.store) == []


async def test_leases_outlive_the_eviction_of_their_locks() -> None:
    """A careless server removes first what has an end of its own, and that is BullMQ's sign of who runs a job."""
    careless = {"maxmemory": "6mb", "maxmemory-policy": "volatile-random"}
    with Redis("redis", settings=careless) as server:
        async with RedisHarness(server.url(), "&careless=yes") as harness:
            store, lock = harness.store, f"{harness.prefix}:q:{{}}:lock".format
            jobs = [await one_leased(store) for _ in range(5)]
            with pytest.raises(StoreUnavailable, match="maxmemory"):  # when there are no more of these
                await fill(store, [])
            assert await harness.client.exists(*(lock(job.id) for job in jobs)) == 0

            assert (await store.reclaim(Recovery("reaper", 60.0, 10, queues=["q"]))).jobs == []
            first, *others = jobs
            assert await store.settle([completed(job.lease) for job in others]) == [Settled.APPLIED] * 4
            await store.heartbeat(WorkerInfo(id="w"), [Beat(first.lease, 60.0)])
            assert await store.settle([completed(first.lease)]) == [Settled.APPLIED]
            assert await broken_rules(store) == []


@pytest.mark.parametrize(
    "url",
    [
        "redis://h/0?prefix=a b", "redis://h/0?prefix=", "redis://h/0?events=some", "redis://h/0?careless=maybe",
        "redis://h/0?colour=red", "unix:///s?cluster=yes", "redis://h/0?cluster=some", "redis://h/0?replicas=many", "redis://h:port/0", "redis://h/0#x",
        "redis://h/jobs", "redis://h/0/1",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_is_refused_before_anything_happens(url: str) -> None:
    with pytest.raises(ConfigError):
        open_store(url)


async def test_names_that_would_be_other_keys_are_refused(harness: RedisHarness) -> None:
    for job in (new(id="a:lock"), new(id="wait"), new(id="7"), new("a:b")):
        with pytest.raises(ConfigError, match="not allowed on Redis"):
            await harness.store.enqueue([job])
    assert await harness.store.count() == []
