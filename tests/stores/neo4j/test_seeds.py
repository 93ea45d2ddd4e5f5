"""Databases that exist: jobs as others made them, with the thirteen properties that they know, and what is unique."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.neo4j import Neo4j

from unstuck import Filter, Jobs, SchemaError, Status, open_store
from unstuck.operations.verify import broken_rules
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.ids import keyed_id, new_id
from unstuck.protocol.job import Category, NewJob, Ref
from unstuck.protocol.leases import Beat, Recovery, Share, Verdict
from unstuck.protocol.outcome import Settled, completed, released
from unstuck.protocol.store import Store
from unstuck.stores.neo4j import migrate
from unstuck.stores.neo4j.client import Neo4jClient
from unstuck.stores.shared.values import at
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import look, trouble

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

KNOWN = {
    "id", "entity_uid", "model", "version", "status", "priority", "created_at", "processed_at", "lock_owner",
    "lock_until", "error", "attempts", "max_attempts",
}  # fmt: skip
QUEUE = {"embedding": Share(300.0, 100)}
CREATE = """
UNWIND range(1, $count) AS n
CREATE (j:Old {
  id: $status + '-' + n, entity_uid: $status + ' entity ' + n, model: 'm', version: '1', status: $status, priority: 1,
  created_at: timestamp() - 60000 + n, attempts: $attempts, max_attempts: 3
})
SET j += $more
"""


class OldDatabase(Neo4jHarness):
    """Nodes of an older program under a label whose schema the store has not seen yet."""

    async def put(self, status: str, count: int, attempts: int = 0, **more: Any) -> list[str]:
        await self.rows(CREATE, status=status, count=count, attempts=attempts, more=more)
        return [f"{status}-{n}" for n in range(1, count + 1)]

    async def unknown(self) -> None:
        """Forget that there was a schema."""
        await self.rows("MATCH (s:OldStore) DELETE s")

    async def node(self, id_: str) -> dict[str, Any]:
        [(properties,)] = await self.rows("MATCH (j:Old {id: $id}) RETURN properties(j)", id=id_)
        return dict(properties)


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[OldDatabase]:
    async with OldDatabase(neo4j_server.url(), label="Old") as harness:
        await harness.unknown()
        yield harness


def ago(seconds: float) -> int:
    return round((time.time() - seconds) * 1000)


async def leased(store: Store, limit: int = 100, owner: str = "w") -> list[Any]:
    return await store.lease(QUEUE, limit, owner)


async def test_jobs_of_others_are_leased_beaten_released_and_completed(harness: OldDatabase) -> None:
    await harness.put("pending", 3)
    store = await harness.another()

    jobs = await leased(store)

    assert [job.id for job in jobs] == ["pending-1", "pending-2", "pending-3"]
    assert jobs[0].payload == {"entity_uid": "pending entity 1", "model": "m", "version": "1"}
    assert (jobs[0].task, jobs[0].attempts, jobs[0].max_attempts, jobs[0].priority) == ("embed", 1, 3, 1)
    pulse = await store.heartbeat(WorkerInfo(id="w"), [Beat(jobs[0].lease, 300.0)])
    assert pulse.verdicts == {jobs[0].lease: Verdict.HELD}
    assert await Jobs(store).release_jobs(["pending-2", "pending-3"], "w") == 2
    assert await store.settle([completed(jobs[0].lease, [0.1])]) == [Settled.APPLIED]
    node = await harness.node("pending-2")
    assert (node["status"], node["attempts"]) == ("pending", 0)
    assert node.keys().isdisjoint({"lock_owner", "lock_until"})
    assert await broken_rules(store) == []


@pytest.mark.accepts("REC-061")
async def test_a_stale_job_of_others_is_recovered_and_a_live_one_is_left(harness: OldDatabase) -> None:
    await harness.put("processing", 1, 1, lock_owner="old-worker", lock_until=ago(-200))
    await harness.rows("MATCH (j:Old {id: 'processing-1'}) SET j.id = 'stale', j.entity_uid = 'another'")
    await harness.put("processing", 1, 2, lock_owner="old-worker", lock_until=ago(-600))
    store = await harness.another()
    assert await Jobs(store).recover_stale_jobs() == 0
    await harness.age(400)

    assert await Jobs(store).recover_stale_jobs() == 1

    stale, live = await harness.node("stale"), await harness.node("processing-1")
    assert (stale["status"], stale["attempts"]) == ("pending", 1)
    assert stale.keys().isdisjoint({"lock_owner", "lock_until"})
    assert (live["status"], live["lock_owner"], live["attempts"]) == ("processing", "old-worker", 2)
    assert [job.id for job in await leased(store)] == ["stale"]


async def test_a_job_of_others_without_an_end_is_adopted_and_not_lost(harness: OldDatabase) -> None:
    await harness.put("processing", 1, 1, lock_owner="old-worker")
    store = await harness.another()

    adopting = await store.reclaim(Recovery("reaper", 30.0, 10, grace=10.0))
    assert (adopting.jobs, adopting.adopted) == ([], 1)
    await harness.age(11)

    [job] = (await store.reclaim(Recovery("reaper", 30.0, 10, grace=10.0))).jobs
    assert (job.id, job.owner) == ("processing-1", "old-worker")


async def test_jobs_that_others_have_finished_since_are_found_by_all_that_they_leave_unsaid(
    harness: OldDatabase,
) -> None:
    store = await harness.another()
    jobs = Jobs(store)
    [id_, _] = await harness.put("failed", 2, 3, error="CUDA out of memory", processed_at=ago(30 * 3600))
    await harness.put("completed", 1, 1, processed_at=ago(30 * 3600))

    dead = Filter(queue="embedding", task="embed", category=Category.PERMANENT, code="error", dead=True)
    assert len((await jobs.find(dead)).jobs) == 2
    assert (await jobs.get(id_, "embedding")).queue == "embedding"
    assert "CUDA out of memory" in await jobs.explain(id_, "embedding")
    for which in (Filter(), Filter(queue="embedding")):
        assert len((await jobs.find(which)).jobs) == 3
    for which in (
        Filter(queue="other"),
        Filter(task="other"),
        Filter(code="timeout"),
        Filter(category=Category.TRANSIENT),
    ):
        assert (await jobs.find(which)).jobs == []
        assert await jobs.retry(which) == 0
    assert await jobs.retry(Filter(queue="embedding", ids=(id_,))) == 1
    assert await jobs.retry(dead) == 1
    assert await jobs.cleanup_jobs(1, "embedding") == 1
    assert len(await leased(store)) == 2


async def test_a_job_that_others_have_just_made_can_be_edited(harness: OldDatabase) -> None:
    store = await harness.another()
    [id_] = await harness.put("pending", 1)
    await harness.rows("MATCH (j:Old) REMOVE j.priority")

    assert await Jobs(store).edit([id_], run_at=at(ago(-3600))) == 1
    assert [event.queue for event in await store.events()] == ["embedding"]
    assert await Jobs(store).edit([id_], run_at=at(ago(1))) == 1
    await store.reclaim(Recovery("reaper", 30.0, 10))

    assert [job.id for job in await leased(store)] == [id_]


async def test_failed_jobs_of_others_are_shown_retried_and_cleaned(harness: OldDatabase) -> None:
    failed = {"error": "no such entity", "processed_at": ago(20 * 86400)}
    await harness.put("failed", 2, 3, **failed)
    await harness.put("completed", 2, 1, processed_at=ago(20 * 86400))
    store = await harness.another()
    jobs = Jobs(store)

    assert await jobs.get_queue_status() == {"pending": 0, "processing": 0, "completed": 2, "failed": 2}
    job = await jobs.get("failed-1")
    assert job.error is not None
    assert (job.dead, job.error.message) == (True, "no such entity")
    assert await jobs.retry(Filter(ids=("failed-1",))) == 1
    assert await jobs.cleanup_jobs(days=14) == 3
    assert [(job.id, job.attempts) for job in await leased(store)] == [("failed-1", 1)]


async def test_more_than_a_batch_is_filled_in_bounded_steps(
    harness: OldDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "AT_ONCE", 7)
    filled: list[int] = []
    ask = Neo4jClient.ask

    async def noting(self: Neo4jClient, name: str, params: dict[str, Any], **options: Any) -> Any:
        answer = await ask(self, name, params, **options)
        if name == "fill":
            filled.append(answer[0])
        return answer

    monkeypatch.setattr(Neo4jClient, "ask", noting)
    await harness.put("pending", 40)
    store = await harness.another()

    assert [number for number in filled if number] == [7, 7, 7, 7, 7, 5]
    assert len(await leased(store)) == 40
    assert await broken_rules(store) == []


async def test_what_others_put_back_later_is_found_by_the_next_recovery(harness: OldDatabase) -> None:
    store = await harness.another()
    await harness.put("pending", 2)
    assert await leased(store) == []

    await store.reclaim(Recovery("reaper", 30.0, 10))

    assert len(await leased(store)) == 2


@pytest.mark.accepts("EMB-140")
async def test_an_embedding_job_is_a_node_with_the_properties_that_others_know(harness: OldDatabase) -> None:
    store = await harness.another()
    [answer] = await store.enqueue([embedding("Ann", priority=3)])
    [job] = await leased(store, owner="w")

    node = await harness.node(job.id)
    assert (node["entity_uid"], node["model"], node["version"]) == ("Ann", "m", "2")
    assert (node["id"], node["status"], node["priority"]) == (answer.id, "processing", 3)
    assert (node["lock_owner"], node["attempts"], node["max_attempts"]) == ("w", 1, 3)
    assert 290_000 < node["lock_until"] - node["created_at"] < 330_000
    await store.settle([released(job.lease)])
    [job] = await leased(store)
    await store.settle([failing(job)])
    node = await harness.node(job.id)
    assert (node["status"], node["error"]) == ("failed", "it did not work")
    assert node["processed_at"] >= node["created_at"]
    assert node.keys() >= KNOWN - {"lock_owner", "lock_until"}


async def test_a_job_of_a_batch_is_about_the_entity_that_its_one_argument_names(harness: OldDatabase) -> None:
    store = await harness.another()
    subject = {"entity_uid": "Ann", "model": "m", "version": 2}
    jobs = [
        NewJob(queue="embedding", task="embed", id=id_, payload={"subjects": subject}) for id_ in ("a", "b")
    ]
    [first, second] = await store.enqueue(jobs)
    assert (first.created, second.created, second.id) == (True, False, first.id)
    node = await harness.node(first.id)
    assert (node["entity_uid"], node["model"], node["version"]) == ("Ann", "m", "2")
    [job] = await leased(store)
    assert job.payload == {"subjects": subject}


def embedding(entity: str, *, key: str | None = None, **facts: Any) -> NewJob:
    payload = {"entity_uid": entity, "model": "m", "version": 2}
    id_ = keyed_id("embedding", key) if key else new_id()
    return NewJob(queue="embedding", task="embed", id=id_, key=key, payload=payload, **facts)


def failing(job: Any) -> Any:
    from unstuck.protocol.outcome import failed

    return failed(job.lease, trouble())


@pytest.mark.accepts("EMB-141")
async def test_there_is_one_job_for_an_entity_a_model_and_a_version(harness: OldDatabase) -> None:
    await harness.put("pending", 1, entity_uid="Ann", version="2")
    store = await harness.another()

    [known, fresh] = await store.enqueue([embedding("Ann"), embedding("Bob", key="b")])
    [again] = await store.enqueue([embedding("Bob", key="another")])

    assert (known.id, known.created) == ("pending-1", False)
    assert fresh.created
    assert (again.id, again.created) == (fresh.id, False)
    assert len(await leased(store)) == 2


async def test_a_finished_one_is_started_over_only_if_that_is_asked_for(harness: OldDatabase) -> None:
    await harness.put("completed", 1, 2, entity_uid="Ann", version="2", processed_at=ago(60))
    store = await harness.another()

    [left] = await store.enqueue([embedding("Ann")])
    [forced] = await store.enqueue([embedding("Ann", again=True)])

    assert (left.created, forced.created) == (False, True)
    assert left.id == forced.id == "completed-1"
    job = await look(store, Ref("embedding", "completed-1"))
    assert (job.status, job.attempts, job.finished_at) == (Status.PENDING, 0, None)


async def test_other_kinds_of_job_live_beside_them(harness: OldDatabase) -> None:
    store = await harness.another()
    payload = {"entity_uid": "Ann", "model": "m", "version": "2"}
    mails = [NewJob(queue="mail", task="send", id=str(n), payload=payload) for n in range(2)]

    answers = await store.enqueue([embedding("Ann"), *mails])

    assert [answer.created for answer in answers] == [True] * 3
    assert len(await store.lease({"mail": Share(60.0, 9)}, 9, "w")) == 2
    assert len(await leased(store)) == 1


async def test_jobs_that_exist_twice_are_reported_with_what_to_do(neo4j_server: Neo4j) -> None:
    async with Neo4jHarness(neo4j_server.url(), label="Twice") as harness:
        for constraint in ("Twice_entity",):
            await harness.rows(f"DROP CONSTRAINT {constraint} IF EXISTS")
        await harness.rows("MATCH (s:TwiceStore) DELETE s")
        await harness.rows(
            "UNWIND ['a', 'b'] AS id CREATE (:Twice {id: id, entity_uid: 'e', model: 'm', version: '1'})"
        )

        async with open_store(harness.url) as store:
            with pytest.raises(
                SchemaError, match="remove what conflicts with it, then run unstuck init again"
            ):
                await store.migrate()
