"""The guards of statements that races seldom reach: each is built for real, as in test_neo4j_races.py."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.neo4j import Neo4j
from support.neo4j_moments import CANCEL, holding

from unstuck.operations.verify import broken_rules
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Category, NewJob, Status
from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.limits import Grant
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import completed, failed
from unstuck.stores.neo4j import store as neo4j_store
from unstuck.stores.neo4j.client import Neo4jClient
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import ahead, counts, enqueued, leased, look, new, one_leased, trouble

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

Step = Callable[[], Coroutine[Any, Any, Any]]
AGAIN = """
MATCH (j:Harness {job_id: $id})
SET j += {status: 'processing', processed_at: null, lock_owner: 'other', lock_until: timestamp() + 60000,
  heartbeat_at: timestamp(), fence: j.fence + 7777, attempts: 1}
"""
DAY = 86400.0
FUTURE = 9_000_000_000_000  # a fence of a clock that was ahead


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[Neo4jHarness]:
    async with Neo4jHarness(neo4j_server.url()) as harness:
        yield harness


@pytest.mark.parametrize("step", ["delete", "delete by age", "requeue", "enqueue again"])
async def test_a_finished_job_that_runs_again_meanwhile_is_left_alone(
    harness: Neo4jHarness, step: str
) -> None:
    job = await one_leased(harness.store)
    await harness.store.settle([completed(job.lease)])
    await harness.age(20 * DAY)
    store = harness.store
    again = NewJob(queue="q", task="task", id=job.id, payload="new", again=True)
    steps: dict[str, Step] = {
        "delete": lambda: store.delete(Filter()),
        "delete by age": lambda: store.delete(Filter(older_than=14 * DAY)),
        "requeue": lambda: store.requeue(Filter()),
        "enqueue again": lambda: store.enqueue([again]),
    }

    async with holding(harness, AGAIN, id=job.id):
        waiting = asyncio.create_task(steps[step]())
    answer = await waiting

    assert not (answer[0].created if step == "enqueue again" else answer)
    after = await look(store, job.ref)
    assert (after.status, after.owner, after.fence) == (Status.PROCESSING, "other", job.fence + 7777)
    assert after.payload == job.payload


@pytest.mark.parametrize("step", ["lease", "edit", "fill", "adopt", "quarantine"])
async def test_a_job_that_was_cancelled_meanwhile_stays_cancelled(harness: Neo4jHarness, step: str) -> None:
    [ref] = await enqueued(harness.store, delay=10.0 if step == "lease" else 0.0)
    await harness.age(11)
    if step in ("adopt", "quarantine"):
        await leased(harness.store)
    if step == "adopt":
        await harness.forget_lease(ref)
    if step == "fill":
        await harness.rows("MATCH (j:Harness {job_id: $id}) SET j.rank = null", id=ref.id)
    await harness.age(2 * DAY)
    before = await look(harness.store, ref)
    facts = {"failure": "{}", "error": "x", "error_category": "PERMANENT", "error_code": "x"}
    aside = facts | {"address": f"q/{ref.id}", "details": "{}", "payload": "{}", "task": "task"}
    store: Any = await harness.another()
    steps: dict[str, Step] = {
        "lease": lambda: leased(store),
        "edit": lambda: store.edit([ref], priority=5),
        "fill": lambda: store.reclaim(Recovery("reaper", 30.0, 10)),
        "adopt": lambda: store.reclaim(Recovery("reaper", 30.0, 10)),
        "quarantine": lambda: store._ask("quarantine", aside),
    }

    async with holding(harness, CANCEL, id=ref.id):
        waiting = asyncio.create_task(steps[step]())
    await waiting

    [(node,)] = await harness.rows("MATCH (j:Harness {job_id: $id}) RETURN properties(j)", id=ref.id)
    assert (node["status"], node["error"], node["fence"]) == ("failed", "x", before.fence + 7777)
    assert node.keys().isdisjoint({"rank", "due_at", "lock_owner", "lock_until", "heartbeat_at"})
    assert await broken_rules(harness.store) == []


async def test_the_fence_grows_although_the_clock_was_put_back(harness: Neo4jHarness) -> None:
    store = harness.store
    [ref] = await enqueued(store)
    await harness.rows("MATCH (j:Harness) SET j.fence = $fence", fence=FUTURE)

    [job] = await leased(store)
    await harness.age(61)
    [taken] = (await store.reclaim(Recovery("reaper", 60.0, 10))).jobs
    await store.cancel([ref])
    assert [job.fence, taken.fence, (await look(store, ref)).fence] == [FUTURE + 1, FUTURE + 2, FUTURE + 3]
    await store.requeue(Filter())
    [retried] = await leased(store)
    await store.settle([completed(retried.lease)])
    await store.enqueue([new(id=ref.id, again=True)])
    [started_over] = await leased(store)

    assert [retried.fence, started_over.fence] == [FUTURE + 4, FUTURE + 5]


async def test_a_dead_owners_job_that_another_has_by_now_is_his(harness: Neo4jHarness) -> None:
    job = await one_leased(harness.store, owner="dead")
    other = "MATCH (j:Harness {job_id: $id}) SET j.lock_owner = 'other', j.fence = j.fence + 7777"

    async with holding(harness, other, id=job.id):
        taking = asyncio.create_task(harness.store.reclaim(Recovery("reaper", 30.0, 10, of=["dead"])))

    assert (await taking).jobs == []
    assert (await look(harness.store, job.ref)).owner == "other"


async def test_a_closure_that_waited_for_a_longer_one_leaves_it(harness: Neo4jHarness) -> None:
    await harness.store.give_back("b", close_for=1.0)
    longer = "MATCH (b:HarnessBucket {name: 'b'}) SET b.closed_until = timestamp() + 900000"

    async with holding(harness, longer):
        closing = asyncio.create_task(harness.store.give_back("b", close_for=10.0))
    await closing

    assert (await harness.store.take("b")).closed_for > 600


async def test_tokens_given_back_at_the_same_time_all_come_back(harness: Neo4jHarness) -> None:
    grant = await harness.store.take("b", 5, 5, 60.0)
    one = "MATCH (b:HarnessBucket {name: 'b'}) SET b.name = b.name WITH b MATCH (g:HarnessGrant) SET g.count = g.count - 1"

    async with holding(harness, one):
        giving = asyncio.create_task(harness.store.give_back("b", 1, grant.stamp))
    await giving

    assert (await harness.store.take("b")).out == 3


async def test_tokens_that_have_returned_are_not_out(harness: Neo4jHarness) -> None:
    await harness.store.take("b", 5, 5, 60.0)
    await harness.age(61)

    assert await harness.store.take("b") == Grant()


async def test_the_clock_is_right(harness: Neo4jHarness) -> None:
    before = datetime.now(UTC)
    told = (await harness.store.clock()).now

    assert before - timedelta(seconds=1) <= told <= datetime.now(UTC) + timedelta(seconds=1)


async def test_a_second_tick_that_waited_for_the_first_is_none(harness: Neo4jHarness) -> None:
    await harness.store.tick("s", datetime(2026, 1, 1, tzinfo=UTC), [])
    slot = datetime(2026, 1, 2, tzinfo=UTC)
    first = "MATCH (s:HarnessSchedule {name: 's'}) SET s.slot = $slot"

    async with holding(harness, first, slot=round(slot.timestamp() * 1000)):
        second = asyncio.create_task(harness.store.tick("s", slot, [new()]))

    assert await second is False
    assert (await counts(harness.store)).pending == 0


async def test_events_of_many_at_once_are_numbered_without_a_gap(harness: Neo4jHarness) -> None:
    refs = await enqueued(harness.store, 40)
    stores = [await harness.another() for _ in range(8)]

    done = await asyncio.gather(*(stores[n % 8].cancel([ref]) for n, ref in enumerate(refs)))

    assert sum(done) == 40
    numbers = [seq for (seq,) in await harness.rows("MATCH (e:HarnessEvent) RETURN e.seq ORDER BY e.seq")]
    assert numbers == list(range(numbers[0], numbers[0] + 40))


async def test_counters_that_are_put_together_add_up_to_what_they_were_before(
    harness: Neo4jHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neo4j_store, "MANY_PIECES", 3)
    for _ in range(5):
        await enqueued(harness.store, 2)
        await harness.store.settle([completed(job.lease) for job in await leased(harness.store, 2)])
    one, two = await harness.another(), await harness.another()
    piece = "MATCH (c:HarnessCounter) WITH c LIMIT 1 SET c.value = c.value"

    async with holding(harness, piece):
        folding = [asyncio.create_task(store.reclaim(Recovery("reaper", 30.0, 10))) for store in (one, two)]
    await asyncio.gather(*folding)

    assert await harness.rows("MATCH (c:HarnessCounter) RETURN count(c)") == [(1,)]
    assert (await counts(harness.store)).totals == {"completed": 10}


async def test_a_second_pause_keeps_the_time_of_the_first(harness: Neo4jHarness) -> None:
    await harness.store.pause("q", "first")
    await harness.age(100)
    [(before,)] = await harness.rows("MATCH (q:HarnessQueue {name: 'q'}) RETURN q.paused_at")
    await harness.store.pause("q", "second")

    [(after, why)] = await harness.rows("MATCH (q:HarnessQueue {name: 'q'}) RETURN q.paused_at, q.paused_why")

    assert (after, why) == (before, "second")


async def test_a_halt_keeps_the_time_of_the_pause(harness: Neo4jHarness) -> None:
    job = await one_leased(harness.store)
    await harness.store.pause("q", "first")
    await harness.age(100)
    asked = "MATCH (q:HarnessQueue {name: 'q'}) RETURN q.paused_at, q.halted_at > q.paused_at"
    [(before, _)] = await harness.rows(asked)

    await harness.store.settle([failed(job.lease, trouble(Category.CRITICAL), halt="CRITICAL: broken")])

    assert await harness.rows(asked) == [(before, True)]


async def test_what_the_previous_release_left_of_a_halt_is_no_reason_of_its_next_pause(
    harness: Neo4jHarness,
) -> None:
    """It knows only the pause."""
    job = await one_leased(harness.store)
    await harness.store.settle([failed(job.lease, trouble(Category.CRITICAL), halt="CRITICAL: broken")])
    queue = "MATCH (q:HarnessQueue {name: 'q'})"
    assert await harness.rows(f"{queue} RETURN q.paused_why") == [("CRITICAL: broken",)]

    await harness.rows(f"{queue} SET q.paused_at = null, q.paused_why = null")
    of = await counts(harness.store)
    assert (of.paused, of.halted) == (None, None)
    assert await harness.store.pause("q", None) is False

    await harness.rows(f"{queue} SET q.paused_at = timestamp() + 1, q.paused_why = 'by hand'")
    of = await counts(harness.store)
    assert (of.paused, of.halted) == ("by hand", None)


async def test_the_work_of_a_paused_queue_wakes_nobody(harness: Neo4jHarness) -> None:
    await enqueued(harness.store)
    await harness.store.wait(["q"], 60.0)
    await harness.store.pause("q", "by hand")
    began = time.monotonic()

    await harness.store.wait(["q"], 2.0)

    assert time.monotonic() - began >= 2.0


@pytest.mark.parametrize("at_a_time", [None, 5])
async def test_a_lease_that_waited_for_a_pause_takes_nothing(
    harness: Neo4jHarness, at_a_time: int | None
) -> None:
    await enqueued(harness.store)
    queues = {"q": Share(60.0, 1, at_a_time=at_a_time)}
    assert await harness.store.lease({"q": Share(60.0, 0)}, 1, "w") == []

    async with holding(harness, "MATCH (q:HarnessQueue {name: 'q'}) SET q.paused_at = timestamp()"):
        lease = asyncio.create_task(harness.store.lease(queues, 1, "w"))

    assert await lease == []


async def test_the_worker_seen_last_comes_first_and_events_of_a_job_have_a_cursor(
    harness: Neo4jHarness,
) -> None:
    store = harness.store
    await store.heartbeat(WorkerInfo(id="a"), [])
    await harness.age(5)
    await store.heartbeat(WorkerInfo(id="b"), [])
    assert [worker.id for worker in (await store.fleet()).workers] == ["b", "a"]

    [ref] = await enqueued(store)
    await store.edit([ref], priority=1)
    await store.cancel([ref])
    first, second = await store.events(job=ref)

    assert await store.events(after=first.cursor, job=ref) == [second]


BROKEN = {
    "a state is one of four": "j.status = 'lost', j.rank = null",
    "a processing job has an owner and a fence": "j.status = 'processing', j.rank = null",
    "only a processing job has an owner or a lease": "j.lock_owner = 'w'",
    "finished means processed_at, and nothing else does": "j.processed_at = 1",
    "only a job that waits has a place in line": "j.status = 'completed', j.processed_at = 1",
    "a job that waits is in line or delayed": "j.rank = null",
    "a place in line is that of its time and priority": "j.rank = 1",
    "crashes are attempts": "j.crashes = 1",
    "attempts stay within their budget": "j.attempts = 9",
    "no lease was ended that was not granted": "j.settled_fence = 9",
    "a failed job says why": "j.status = 'failed', j.rank = null, j.processed_at = 1",
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_verify_names_the_rule_that_a_record_breaks(harness: Neo4jHarness, rule: str) -> None:
    [ref] = await enqueued(harness.store)
    await harness.rows(f"MATCH (j:Harness) SET {BROKEN[rule]}")

    assert await broken_rules(harness.store) == [f"{rule}: job {ref.id} of queue q"]


async def test_verify_does_not_report_what_was_half_written_when_it_read(
    harness: Neo4jHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a statement sees a lease that another one is just writing."""
    first, second = await enqueued(harness.store, 2)
    await harness.rows("MATCH (j:Harness) SET j.lock_owner = 'w'")
    ask, looks = Neo4jClient.ask, list[int]()

    async def then_written(client: Neo4jClient, name: str, *given: Any, **named: Any) -> Any:
        answer = await ask(client, name, *given, **named)
        if name == "verify":
            looks.append(len(answer))
            await harness.rows("MATCH (j:Harness {job_id: $id}) SET j.lock_owner = null", id=second.id)
        return answer

    monkeypatch.setattr(Neo4jClient, "ask", then_written)

    assert await broken_rules(harness.store) == [
        f"only a processing job has an owner or a lease: job {first.id} of queue q"
    ]
    assert looks[:2] == [2, 1]


async def test_verify_finds_events_without_their_job(harness: Neo4jHarness) -> None:
    [ref] = await enqueued(harness.store)
    await harness.store.cancel([ref])
    await harness.rows("MATCH (j:Harness) DELETE j")

    assert await broken_rules(harness.store) == [f"events die with their job: job {ref.id} of queue q"]


async def test_beside_limits_the_share_the_order_and_the_length_of_leases_are_kept(
    harness: Neo4jHarness,
) -> None:
    refs = await enqueued(harness.store, 5)
    await enqueued(harness.store, 5, queue="other")
    queues = {"q": Share(600.0, 2, at_a_time=4), "other": Share(60.0, 9)}

    jobs = await harness.store.lease(queues, 9, "w")

    ours = [job for job in jobs if job.queue == "q"]
    assert [job.ref for job in ours] == refs[:2]
    assert len(jobs) == 7
    for job in jobs:
        assert job.lease_until is not None
        assert job.started_at is not None
        assert (job.lease_until - job.started_at).total_seconds() == queues[job.queue].seconds


async def test_reading_is_bounded(harness: Neo4jHarness) -> None:
    await enqueued(harness.store, 5, lane="a")
    store: Any = harness.store

    assert len((await store.find(Filter(), 2)).jobs) == 2
    [[_, [[lane, head]]]] = await store._ask("lanes", {"lanes": [{"queue": "q", "most": 2}]})
    assert (lane, len(head)) == ("a", 2)


async def test_jobs_of_one_call_stand_behind_each_other(harness: Neo4jHarness) -> None:
    refs = [answer.ref for answer in await harness.store.enqueue([new() for _ in range(4)])]

    assert [await ahead(harness.store, ref) for ref in refs] == [0, 1, 2, 3]
