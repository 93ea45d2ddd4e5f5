"""Nodes that others wrote or edited: what is no number, no text or not there stops nobody, and no job is lost over it."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.command import unstuck
from support.neo4j import Neo4j

from unstuck import ConfigError, Filter, Jobs, Status
from unstuck.operations.verify import broken_rules
from unstuck.protocol.availability import Blind
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.outcome import released
from unstuck.protocol.store import Store
from unstuck.stores.neo4j import migrate
from unstuck.stores.neo4j.client import Neo4jClient
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import enqueued, leased, look

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

QUEUE = {"embedding": Share(300.0, 100)}
CHANGE = "MATCH (j:Harness {job_id: $id}) SET j += $facts"
ALL = "MATCH (j:Harness) RETURN properties(j) ORDER BY j.entity_uid"


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[Neo4jHarness]:
    async with Neo4jHarness(neo4j_server.url()) as harness:
        yield harness


async def theirs(harness: Neo4jHarness, status: str, count: int = 1, **more: Any) -> list[str]:
    """Nodes that another program makes, all in the same millisecond."""
    usual = {"model": "m", "version": "1", "status": status, "priority": 1, "attempts": 1, "max_attempts": 3}
    usual |= {"created_at": await ago(harness, 60)}
    ids = [f"{status}-{n}" for n in range(1, count + 1)]
    nodes = [usual | {"id": id_, "entity_uid": f"entity of {id_}"} | more for id_ in ids]
    await harness.rows("UNWIND $nodes AS node CREATE (j:Harness) SET j = node", nodes=nodes)
    return ids


async def ago(harness: Neo4jHarness, seconds: float) -> int:
    [(now,)] = await harness.rows("RETURN timestamp()")
    return int(now) - round(seconds * 1000)


async def recovered(harness: Neo4jHarness) -> list[str]:
    store = await harness.another()
    return [job.id for job in (await store.reclaim(Recovery("reaper", 30.0, 100))).jobs]


async def walked(store: Store, which: Filter, limit: int = 1) -> list[str]:
    """The ids of a listing, page by page."""
    found, cursor = [], None
    for _ in range(50):
        page = await store.find(which, limit, cursor)
        found += [job.id for job in page.jobs]
        if (cursor := page.cursor) is None:
            return found
    raise AssertionError("the listing has no end")


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize(
    "which",
    [
        Filter(),
        Filter(queue="embedding"),
        Filter(status=Status.FAILED),
        Filter(dead=True),
        Filter(ids=("failed-1", "failed-2", "failed-3", "numbered-1")),
    ],
    ids=["all", "queue", "status", "dead", "ids"],
)
async def test_jobs_of_others_without_a_number_are_listed_to_the_last(
    harness: Neo4jHarness, which: Filter, limit: int
) -> None:
    when = await ago(harness, 10)
    await theirs(harness, "failed", 3, error="x", processed_at=when)
    more = {"id": "numbered-1", "entity_uid": "numbered", "seq": 5, "error": "x", "processed_at": when}
    await theirs(harness, "failed", 1, **more)

    assert await walked(harness.store, which, limit) == ["numbered-1", "failed-1", "failed-2", "failed-3"]
    assert (await Jobs(harness.store).matching(which)).total() == 4


@pytest.mark.parametrize(
    "which", [Filter(status=Status.PROCESSING), Filter(owner="w")], ids=["status", "owner"]
)
async def test_running_jobs_of_others_without_a_number_are_listed_to_the_last(
    harness: Neo4jHarness, which: Filter
) -> None:
    facts = {"lock_owner": "w", "lock_until": await ago(harness, 10)}
    ids = await theirs(harness, "processing", 3, **facts)
    await theirs(harness, "processing", 1, **facts, id="numbered-1", entity_uid="numbered", seq=5)

    assert await walked(harness.store, which) == ["numbered-1", *ids]


async def test_jobs_that_were_made_or_retried_in_one_moment_are_listed_to_the_last(
    harness: Neo4jHarness,
) -> None:
    pending = await theirs(harness, "pending", 3)
    await recovered(harness)
    assert sorted(await walked(harness.store, Filter())) == pending

    failed = await theirs(harness, "failed", 3, error="x", processed_at=await ago(harness, 10))
    assert await harness.store.requeue(Filter()) == 3
    assert sorted(await walked(harness.store, Filter(status=Status.PENDING))) == sorted(failed + pending)


@pytest.mark.parametrize("id_", [None, 7])
async def test_a_node_without_an_id_is_no_job_and_holds_up_none(
    harness: Neo4jHarness, id_: int | None, tmp_path: Path
) -> None:
    when = await ago(harness, 10)
    held = {"lock_owner": "w", "lock_until": when}
    nodes: dict[str, dict[str, Any]] = {
        "pending": {},
        "processing": held,
        "failed": {"error": "x", "processed_at": when - 20 * 86_400_000},
    }
    for status, facts in nodes.items():
        id_of = None if id_ is None else id_ + len(status)
        await theirs(harness, status, 1, **facts, id=id_of)
    await theirs(harness, "processing", 1, entity_uid="without end", id=id_, lock_owner="w", created_at=0)
    before = await harness.rows(ALL)
    await theirs(harness, "processing", 1, entity_uid="fine", **held, heartbeat_at=when)

    assert await recovered(harness) == ["processing-1"]
    store = harness.store
    assert (await store.reclaim(Recovery("reaper", 30.0, 10, of=["w"]))).jobs == []
    assert (await store.heartbeat(WorkerInfo(id="w"), [])).strangers == []
    assert await store.lease(QUEUE, 10, "w") == []
    assert await store.lease({"embedding": Share(60.0, 9, at_a_time=9)}, 9, "w") == []
    assert await walked(store, Filter()) == ["processing-1"]
    assert await store.requeue(Filter()) == 0
    assert await store.delete(Filter()) == 0
    assert await Jobs(store).cleanup_jobs(14) == 0

    await harness.rows("MATCH (j:Harness {entity_uid: 'fine'}) DELETE j")
    assert await harness.rows(ALL) == before
    assert len([line for line in await broken_rules(store) if line.startswith("an id is a text: ")]) == 4
    told = unstuck(tmp_path, "doctor", store=harness.url)
    assert (
        "4 jobs with an id that is missing, empty or not text: such a job is never taken or shown"
        in told.stdout
    )


async def test_a_job_whose_id_became_a_number_is_put_aside(harness: Neo4jHarness) -> None:
    await theirs(harness, "pending", 2)
    await recovered(harness)
    await harness.rows("MATCH (j:Harness {id: 'pending-1'}) SET j.id = 7")

    assert [job.id for job in await harness.store.lease(QUEUE, 10, "w")] == ["pending-2"]

    assert await harness.rows("MATCH (j:Harness {id: 7}) RETURN j.status, j.error_code") == [
        ("failed", "unreadable")
    ]


NO_NUMBERS = ["'high'", "[1]", "datetime()", "true", "1700000000000000", "-5.5", "0.0 / 0.0", "null"]


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("name", ["priority", "created_at", "run_at"])
async def test_what_is_no_number_keeps_no_job_of_others_out_of_line(
    harness: Neo4jHarness, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setattr(migrate, "AT_ONCE", 2)
    await theirs(harness, "pending", 4)
    await harness.rows(f"MATCH (j:Harness) SET j.{name} = {value}")
    await theirs(harness, "pending", 1, id="z", entity_uid="z")

    await recovered(harness)

    assert await harness.rows(
        "MATCH (j:Harness) WHERE coalesce(j.rank, j.due_at) IS NOT NULL AND j.seq > 0 RETURN count(j)"
    ) == [(5,)]
    jobs = await harness.store.lease(QUEUE, 10, "w")
    assert "z" in [job.id for job in jobs]
    states = dict(await harness.rows("MATCH (j:Harness) RETURN j.id, j.status"))
    assert states == dict.fromkeys(states, "failed") | {job.id: "processing" for job in jobs}
    if name == "priority":
        assert len(jobs) == 5


async def test_a_job_of_others_from_the_year_2255_is_numbered_and_waits(harness: Neo4jHarness) -> None:
    await theirs(harness, "pending", 1, id="far", created_at=8_999_999_999_999)

    await recovered(harness)

    assert await harness.rows("MATCH (j:Harness) RETURN j.seq > 0, j.due_at") == [(True, 8_999_999_999_999)]
    assert await harness.store.lease(QUEUE, 10, "w") == []


@pytest.mark.parametrize("value", NO_NUMBERS[:3])
@pytest.mark.parametrize("name", ["lock_until", "heartbeat_at", "started_at", "attempts"])
async def test_what_is_no_number_keeps_no_running_job_of_others_from_being_recovered(
    harness: Neo4jHarness, name: str, value: str
) -> None:
    [id_] = await theirs(harness, "processing", 1, lock_owner="w", lock_until=await ago(harness, 10))
    await harness.rows(f"MATCH (j:Harness) SET j.{name} = {value}")
    store = await harness.another()

    jobs = (await store.reclaim(Recovery("reaper", 30.0, 10, grace=10.0))).jobs
    if name == "lock_until":  # an end that is none is given first
        assert jobs == []
        await harness.rows("MATCH (j:Harness) SET j.lock_until = j.lock_until - 20000")
        jobs = (await store.reclaim(Recovery("reaper", 30.0, 10, grace=10.0))).jobs

    [(code,)] = await harness.rows("MATCH (j:Harness) RETURN j.error_code")
    unreadable = name in ("started_at", "attempts")
    assert ([job.id for job in jobs], code) == (([], "unreadable") if unreadable else ([id_], None))


async def test_a_beat_that_is_no_number_does_not_stop_a_recovery_behind_an_outage(
    harness: Neo4jHarness,
) -> None:
    edited, fine = await enqueued(harness.store, 2)
    await leased(harness.store, 2)
    await harness.rows(CHANGE, id=edited.id, facts={"heartbeat_at": "just now"})
    await harness.rows("MATCH (j:Harness) SET j.lock_until = j.lock_until - 90000")

    taken = await harness.store.reclaim(Recovery("reaper", 30.0, 10, blind=[Blind(10.0, 5.0)]))

    assert [job.ref for job in taken.jobs] == [fine]
    job = await look(harness.store, edited)
    assert job.error is not None
    assert job.error.code == "unreadable"


@pytest.mark.parametrize("facts", [{"priority": "high"}, {"run_at": "soon"}, {"priority": 70}])
async def test_a_delayed_job_that_somebody_edited_halts_no_queue_when_it_is_due(
    harness: Neo4jHarness, facts: dict[str, Any]
) -> None:
    edited, fine = await enqueued(harness.store, 2, delay=10.0)
    await harness.rows(CHANGE, id=edited.id, facts=facts)
    await harness.rows("MATCH (j:Harness) SET j.due_at = j.due_at - 20000")

    assert fine in [job.ref for job in await leased(harness.store, 5)]
    assert await harness.rows("MATCH (j:Harness) WHERE j.due_at IS NOT NULL RETURN count(j)") == [(0,)]


async def test_a_priority_that_is_no_number_stops_no_verb(harness: Neo4jHarness) -> None:
    store = harness.store
    waits, runs, fails = await enqueued(store, 3)
    jobs = {job.ref: job for job in await leased(store, 3)}
    await store.settle([released(jobs[waits].lease)])
    await store.cancel([fails])
    for ref in (waits, runs, fails):
        await harness.rows(CHANGE, id=ref.id, facts={"priority": "high"})

    assert await store.settle([released(jobs[runs].lease)]) == ["applied"]
    assert await store.edit([waits], run_at=jobs[waits].created_at) == 1
    assert await store.requeue(Filter()) == 1
    assert await broken_rules(store) == []


async def test_verify_reports_other_rules_where_a_time_is_no_number(harness: Neo4jHarness) -> None:
    [ref] = await enqueued(harness.store)
    await harness.rows(CHANGE, id=ref.id, facts={"run_at": "soon", "attempts": 9})

    assert await broken_rules(harness.store) == [
        f"attempts stay within their budget: job {ref.id} of queue q"
    ]


@pytest.mark.parametrize("status", ["null", "5", "['a']", "''"])
async def test_doctor_reports_jobs_without_a_status_and_how_to_fix_them(
    harness: Neo4jHarness, status: str, tmp_path: Path
) -> None:
    [ref, _] = await enqueued(harness.store, 2)
    await harness.rows(f"MATCH (j:Harness {{job_id: $id}}) SET j.status = {status}", id=ref.id)

    told = unstuck(tmp_path, "doctor", store=harness.url).stdout

    assert (
        f"1 job with a status that is missing, empty or not text: no worker will ever take such a job: q/{ref.id}"
        in told
    )
    [fix] = [line.partition("MATCH")[2] for line in told.splitlines() if "SET j.status" in line]
    await harness.rows(f"MATCH{fix.partition(', or the right one')[0]}")
    assert len(await leased(harness.store, 2)) == 2


async def test_who_may_not_look_for_indexes_opens_the_store_all_the_same(
    harness: Neo4jHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = Neo4jClient.rows

    async def refusing(self: Neo4jClient, text: str, **options: Any) -> list[list[Any]]:
        if "SHOW INDEXES" in text:
            raise ConfigError("the server refuses us: SHOW INDEX is not allowed")
        return await rows(self, text, **options)

    monkeypatch.setattr(Neo4jClient, "rows", refusing)

    with caplog.at_level(logging.DEBUG, "unstuck.neo4j"):
        store = await harness.another()

    assert "SHOW INDEX is not allowed" in caplog.text
    assert len(await enqueued(store)) == 1
