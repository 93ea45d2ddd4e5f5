"""How the statements that run all the time find their jobs: by index, however many finished jobs lie beside them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.neo4j import QUEUE, Neo4j

from unstuck.protocol.leases import Recovery, Share
from unstuck.protocol.outcome import completed
from unstuck.stores.neo4j import steps
from unstuck.stores.neo4j.statements import guarded, statements_for
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import enqueued, leased

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

SCANS = ("AllNodesScan", "NodeByLabelScan", "NodeIndexScan")
FINISHED = """
UNWIND range(1, $count) AS n
CALL (n) {
  CREATE (:Harness {
    id: 'q/' + n, job_id: toString(n), queue: 'q', task: 'task', payload: 'null', status: 'completed', priority: 0,
    created_at: timestamp(), run_at: timestamp(), started_at: timestamp(), processed_at: timestamp(), seq: n, attempts: 1,
    max_attempts: 3, fence: 1, settled_fence: 1, settled: 'completed'
  })
} IN TRANSACTIONS OF 10000 ROWS
"""
LEASE = steps.leasing({"q": Share(60.0, 50)}, 50, "w")
RECLAIM = {
    name: value
    for asked in steps.reclaiming(Recovery("reaper", 30.0, 50))
    for name, value in asked.params.items()
}
WAITING = 2000
FILL = {
    "status": "pending", "behind": "", "limit": 50, "queue": "embedding", "task": "embed", "lease": 1, "first": 0,
}  # fmt: skip
STATEMENTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "lease": (("lease",), LEASE),
    "lease of new jobs": (("lease",), steps.leasing({"q": Share(60.0, 50, only_new=True)}, 50, "w")),
    "settle and lease": (("complete", "lease"), LEASE | {"completed": []}),
    "reclaim": (("reclaim",), RECLAIM),
    "recovery": (("adopt", "reclaim", "next_end"), RECLAIM),
    "work": (("work",), {"queues": ["q"]}),
    "heads": (("heads",), {"in_line": "", "delayed": "", "any_time": False}),
    "heartbeat": (("heartbeat",), {"beats": [], "owner": "w", "facts": "{}", "remember": 60_000}),
    "settle": (("settle",), {"outcomes": [], "events": []}),
    "fill": (("fill",), FILL),
    "ahead": (("ahead",), {"address": "q/1", "bound": 100}),
    "lock of a key": (("enqueue_lock",), {"keys": [{"queue": "q", "key": "k"}]}),
    "standing": (("enqueue_standing",), {"queue": "q", "key": "k", "replaces": True, "address": "q/2"}),
    "instead": (
        ("enqueue_instead",),
        {"address": "q/0", "delay": 1, "facts": {}, "expires_at": None, "expires": None},
    ),
    "space": (("enqueue_space",), {"queue": "q", "key": "k", "address": "q/1", "interval": 1}),
    "forget spacing": (("forget_spacing",), {"limit": 10}),
}


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[Neo4jHarness]:
    async with Neo4jHarness(neo4j_server.url()) as harness:
        yield harness


async def profile(harness: Neo4jHarness, name: str) -> tuple[list[str], int]:
    """The operators of a statement, and how often it touched the store; what it changed is undone."""
    names, params = STATEMENTS[name]
    text = guarded("Harness", [statements_for("Harness")[one] for one in names])
    [(birth,)] = await harness.rows("MATCH (s:HarnessStore) RETURN s.birth")
    session = harness.driver.session(database=QUEUE)
    async with session, await session.begin_transaction() as tx:
        summary = await (await tx.run(f"PROFILE {text}", params | {"birth": birth})).consume()
        await tx.rollback()
    operators: list[str] = []
    hits = 0
    plans = [summary.profile]
    while plans:
        plan = plans.pop()
        operators.append(str(plan["operatorType"]).split("@")[0])
        hits += plan.get("dbHits", 0)
        plans += plan.get("children", [])
    return operators, hits


@pytest.mark.accepts("REC-062")
@pytest.mark.parametrize("name", STATEMENTS)
async def test_statements_find_their_jobs_by_index(harness: Neo4jHarness, name: str) -> None:
    await enqueued(harness.store, 100)
    await leased(harness.store, 10)

    operators, _ = await profile(harness, name)

    # Workers are few, and all of them are looked at for those that have long been silent.
    allowed = ["NodeByLabelScan"] if name == "heartbeat" else []
    assert [one for one in operators if one in SCANS] == allowed
    assert any("Seek" in one for one in operators)


@pytest.mark.long
async def test_two_hundred_thousand_finished_jobs_cost_a_lease_and_a_recovery_nothing(
    harness: Neo4jHarness,
) -> None:
    await enqueued(harness.store, WAITING)
    await leased(harness.store, 10, seconds=3600.0)  # longer than it takes to make the others
    before = {name: (await profile(harness, name))[1] for name in STATEMENTS}

    await harness.rows(FINISHED, count=200_000)

    for name in STATEMENTS:
        operators, hits = await profile(harness, name)
        assert not [one for one in operators if one in SCANS and name != "heartbeat"], name
        # To fill is to look at every job that waits, in an order of conditions that the planner may choose otherwise.
        most = 20 * WAITING if name == "fill" else 1.2 * before[name] + 10
        assert hits <= most, f"{name}: {before[name]} hits before, {hits} now"
    assert len(await leased(harness.store, 50)) == 50
    assert (await harness.store.reclaim(Recovery("reaper", 30.0, 50))).jobs == []


@pytest.mark.long
async def test_a_lease_beside_many_delayed_urgent_jobs_is_as_quick_as_without(harness: Neo4jHarness) -> None:
    await enqueued(harness.store, 500)
    await leased(harness.store, 10)
    _, before = await profile(harness, "lease")
    for _ in range(10):
        await enqueued(harness.store, 5000, priority=9, delay=3600.0)

    operators, hits = await profile(harness, "lease")

    assert not [one for one in operators if one in SCANS]
    # To look at the delayed would be 50,000 hits at least. The planner may read all of the few that are due, and sort them.
    assert hits <= 5 * before, operators


async def test_draining_leaves_nothing_behind_that_the_next_lease_walks_over(harness: Neo4jHarness) -> None:
    await enqueued(harness.store, 60)
    await leased(harness.store, 10)
    _, fresh = await profile(harness, "lease")
    for _ in range(20):
        jobs = await leased(harness.store, 50)
        await harness.store.settle([completed(job.lease) for job in jobs])
        await enqueued(harness.store, 50)

    _, used = await profile(harness, "lease")

    assert fresh > 50
    assert used <= 1.2 * fresh + 10
