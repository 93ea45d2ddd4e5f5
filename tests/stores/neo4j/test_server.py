"""What becomes of jobs when the server dies, another one answers, replies are lost, or a record is damaged."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest
from neo4j.exceptions import Neo4jError
from support.neo4j import QUEUE, Neo4j
from support.proxy import Proxy
from support.unreadable import unreadable_is_told
from support.waiting import until_async
from support.workers import Workers

from unstuck import ConfigError, Filter, SchemaError, Status, StoreUnavailable, open_store
from unstuck.operations.verify import broken_rules
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.leases import Beat, Share, Verdict
from unstuck.protocol.outcome import Settled, completed, failed
from unstuck.protocol.store import Store
from unstuck.stores.neo4j import client
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import counts, enqueued, leased, look, new, one_leased, states, trouble

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]

T = TypeVar("T")


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[Neo4jHarness]:
    async with Neo4jHarness(neo4j_server.url()) as harness:
        yield harness


@pytest.fixture
async def proxy(neo4j_server: Neo4j) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", neo4j_server.port) as proxy:
        yield proxy


@pytest.fixture
async def store(harness: Neo4jHarness, proxy: Proxy) -> AsyncIterator[Store]:
    """The harness's store, seen through the proxy."""
    async with open_store(proxy.through(harness.url)) as store:
        yield store


async def started(server: Neo4j, store: Store) -> None:
    """Start a server that was stopped. Cold, it may take longer for its first answers than anybody waits for one."""
    await asyncio.to_thread(server.start)

    async def answers() -> bool:
        try:
            await store.count()
        except StoreUnavailable:
            return False
        return True

    await until_async(answers, 200, "the server to answer")


async def test_what_was_acknowledged_survives_a_killed_server(
    harness: Neo4jHarness, neo4j_server: Neo4j
) -> None:
    await enqueued(harness.store, 50)
    held, done = await leased(harness.store, 2)
    await harness.store.settle([completed(done.lease, "kept")])

    await asyncio.to_thread(neo4j_server.kill9)
    killed = time.monotonic()
    await started(neo4j_server, harness.store)

    assert await states(harness.store) == {"pending": 48, "processing": 1, "completed": 1}
    assert await harness.store.settle([completed(done.lease, "kept"), completed(held.lease)]) == [
        Settled.REPEATED,
        Settled.APPLIED,
    ]
    assert await broken_rules(harness.store) == []
    assert (await harness.store.clock()).uptime <= time.monotonic() - killed + 1.0


@pytest.mark.long
async def test_workers_go_on_by_themselves_when_the_server_was_killed_in_mid_run(
    harness: Neo4jHarness, neo4j_server: Neo4j, workers: Workers
) -> None:
    await workers.enqueue("step", 120, seconds=0.3, max_attempts=50)
    supervisor = workers.start("--processes", "2", "--recovery", "1")
    await until_async(lambda: workers.ended() >= 20, 90, "some jobs to end", supervisor.log)

    await asyncio.to_thread(neo4j_server.kill9)
    before = workers.ended()
    await asyncio.to_thread(neo4j_server.start)
    found = await workers.finished(300, supervisor)

    assert before < 120, "the server was killed behind the last job"
    assert Counter(job.status for job in found) == {Status.COMPLETED: 120}
    crashes = {job.id: job.crashes for job in found}
    again = {id_: len(fences) - 1 for id_, fences in workers.ledger.doubles().items()}
    assert all(crashes[id_] >= times for id_, times in again.items()), "a job ran twice, and nobody had died"
    assert (await counts(harness.store, "long")).totals["completed"] == 120
    assert await broken_rules(harness.store) == []


@pytest.mark.long
async def test_nothing_is_written_to_another_database_that_answers_at_the_same_address(
    harness: Neo4jHarness, neo4j_server: Neo4j
) -> None:
    job = await one_leased(harness.store)
    await asyncio.to_thread(neo4j_server.kill9)
    stranger = Neo4j(QUEUE)
    stranger.port = neo4j_server.port
    with stranger:
        async with open_store(f"{stranger.url()}?label={harness.label}") as theirs:
            await theirs.migrate()
            await theirs.enqueue([new()])

            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="another database answers"):
                    await harness.store.settle([completed(job.lease)])
                with pytest.raises(StoreUnavailable):
                    await leased(harness.store, 5)
            assert await states(theirs) == {"pending": 1}
        await asyncio.to_thread(stranger.stop)

    await started(neo4j_server, harness.store)
    assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]


async def unanswered(
    work: Coroutine[Any, Any, T], proxy: Proxy, to: bytes, done: Callable[[], Awaitable[bool]]
) -> T:
    """Carry out ``work`` so that no reply to it arrives: the connection is cut when the server has committed."""
    proxy.drop_reply(to=to, quiet=60.0)
    task = asyncio.create_task(work)
    await until_async(done, 30, "the server to have done it")
    proxy.reset()
    return await task


@pytest.mark.parametrize("word", ["completed", "failed"])
async def test_a_settle_whose_reply_was_lost_is_sent_again_and_known(
    harness: Neo4jHarness, store: Store, proxy: Proxy, word: str
) -> None:
    job = await one_leased(store)
    outcome = completed(job.lease) if word == "completed" else failed(job.lease, trouble())
    statement = b"UNWIND $completed" if word == "completed" else b"UNWIND $outcomes"

    async def done() -> bool:
        return await states(harness.store) == {word: 1}

    assert await unanswered(store.settle([outcome]), proxy, statement, done) == [Settled.REPEATED]

    assert (await counts(harness.store)).totals == {word: 1}


async def test_an_enqueue_whose_reply_was_lost_is_sent_again_and_still_answers_created(
    harness: Neo4jHarness, store: Store, proxy: Proxy
) -> None:
    async def done() -> bool:
        return await states(harness.store) == {"pending": 2}

    answers = await unanswered(store.enqueue([new(key="k"), new()]), proxy, b"UNWIND $jobs", done)

    assert [answer.created for answer in answers] == [True, True]
    assert await done()


async def test_a_lease_whose_reply_was_lost_is_not_taken_twice_and_is_found_by_the_beat(
    harness: Neo4jHarness, store: Store, proxy: Proxy
) -> None:
    await enqueued(store, 4)
    await leased(store, 1, owner="w")

    async def done() -> bool:
        return (await counts(harness.store)).processing == 3

    with pytest.raises(StoreUnavailable):
        await unanswered(leased(store, 2, owner="w"), proxy, b"UNWIND $shares", done)

    assert await done()
    assert len((await store.heartbeat(WorkerInfo(id="w"), [])).strangers) == 3


async def test_a_beat_goes_through_although_connections_were_cut(store: Store, proxy: Proxy) -> None:
    job = await one_leased(store)
    proxy.reset()

    pulse = await store.heartbeat(WorkerInfo(id="w"), [Beat(job.lease, 60.0)])

    assert pulse.verdicts == {job.lease: Verdict.HELD}


async def test_a_record_that_cannot_be_read_is_put_aside_and_holds_up_nobody(harness: Neo4jHarness) -> None:
    broken, twisted, numeric, listed, fine = await enqueued(harness.store, 5, payload={"a": 1})
    damages = {
        broken: ("payload: '{oops'", "{oops"),
        twisted: ("max_attempts: 'three'", {"a": 1}),
        numeric: ("payload: 7", "7"),
        listed: ("task: ['a', 'b']", {"a": 1}),
    }
    for ref, (damage, _) in damages.items():
        await harness.rows(f"MATCH (j:Harness {{job_id: $id}}) SET j += {{{damage}}}", id=ref.id)

    assert [job.ref for job in await leased(harness.store, 5)] == [fine]

    for ref, (_, payload) in damages.items():
        job = await look(harness.store, ref)
        assert job.payload == payload
        assert job.status is Status.FAILED
        assert job.error is not None
        assert job.error.code == "unreadable"
        assert "quarantined" in [event.type for event in await harness.store.events(job=ref)]
    assert await broken_rules(harness.store) == []


@pytest.mark.parametrize("damage", ["status: 'PENDING'", "payload: '{oops'", "priority: 'high'"])
async def test_a_record_that_cannot_be_read_is_left_out_of_listings_and_named_where_it_is_asked_for(
    harness: Neo4jHarness, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, bad, last = await enqueued(harness.store, 3)
    await harness.rows(f"MATCH (j:Harness {{job_id: $id}}) SET j += {{{damage}}}", id=bad.id)

    await unreadable_is_told(harness.store, [last, first], bad, caplog)


async def test_a_wiped_database_can_be_used_again_after_init_without_a_restart(harness: Neo4jHarness) -> None:
    await one_leased(harness.store)
    await harness.rows("MATCH (n:Harness|HarnessQueue|HarnessStore) DETACH DELETE n")
    with pytest.raises(SchemaError, match="run unstuck init"):
        await enqueued(harness.store)

    await (await harness.another()).migrate()
    await enqueued(harness.store)

    async def again() -> bool:
        return len(await leased(harness.store)) == 1

    await until_async(again, 30, "the job to be leased")
    assert await harness.store.delete(Filter()) == 0


async def test_a_refusal_is_reported_with_its_reason_and_without_the_password(neo4j_server: Neo4j) -> None:
    secret = f"{random.getrandbits(64):x}"
    url = f"bolt://neo4j:{secret}@127.0.0.1:{neo4j_server.port}/embedding-jobs"
    with pytest.raises(ConfigError, match="refuses us") as wrong:
        async with open_store(url):
            pass
    assert secret not in str(wrong.value)
    with pytest.raises(StoreUnavailable):
        async with open_store("bolt://127.0.0.1:1/embedding-jobs"):
            pass


async def test_on_community_a_database_that_is_not_there_is_reported_with_what_to_do(
    neo4j_server: Neo4j,
) -> None:
    async with open_store(neo4j_server.url().replace("embedding-jobs", "other-jobs")) as store:
        with pytest.raises(
            ConfigError, match=r"there is no database 'other-jobs': .*initial\.dbms\.default_database"
        ):
            await store.migrate()
        with pytest.raises(ConfigError, match="no database"):
            await store.lease({"q": Share(1.0, 1)}, 1, "w")


async def test_why_a_database_could_not_be_made_is_reported(
    neo4j_server: Neo4j, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Enterprise, to one who may use databases but not make them."""
    run = client._run

    async def forbidden(session: Any, text: str, *given: Any, **named: Any) -> Any:
        if text.startswith("CREATE DATABASE"):
            code = "Neo.ClientError.Security.Forbidden"
            raise Neo4jError._hydrate_neo4j(code=code, message="Database creation is not allowed")
        return await run(session, text, *given, **named)

    monkeypatch.setattr(client, "_run", forbidden)

    async with open_store(neo4j_server.url().replace("embedding-jobs", "other-jobs")) as store:
        with pytest.raises(ConfigError, match="the server refuses us: Database creation is not allowed"):
            await store.migrate()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("neo4j:///embedding-jobs", "not the address of a Neo4j server"),
        ("neo4j://host:99999/embedding-jobs", "not the address of a Neo4j server"),
        ("neo4j://host/a", "names no database"),
        ("neo4j://host/x%60y", "names no database"),
        ("bolt://host/jobs-db?label=a%20b", "label"),
        ("bolt://host/jobs-db?label=1", "label"),
        ("bolt://host/jobs-db?events=some", "events"),
        ("bolt://host/jobs-db?queue=a/b", "queue"),
        ("bolt://host/jobs-db?colour=red", "colour"),
    ],
)
def test_an_address_that_cannot_be_is_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        open_store(url)
