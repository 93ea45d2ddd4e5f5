"""Debounced and throttled jobs on Neo4j: who waits for whose lock, and what is kept of the intervals of keys."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.neo4j import Neo4j
from support.neo4j_moments import holding

from unstuck import ConfigError
from unstuck.protocol.job import NewJob
from unstuck.protocol.leases import Recovery
from unstuck.stores.neo4j import store as neo4j_store
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import look, states
from unstuck.testing.conformance.spacing import INTERVAL, add, debounced, throttled

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
LEASE = """
MATCH (j:Harness {job_id: $id})
SET j += {status: 'processing', rank: null, due_at: null, lock_owner: 'other', lock_until: timestamp() + 60000,
  heartbeat_at: timestamp(), fence: 7777, attempts: 1}
"""
OVER = "MATCH (s:HarnessSpacing) SET s.until = s.until - 1000 * $seconds"
AGAIN = "MATCH (s:HarnessSpacing {key: $key}) SET s.until = timestamp() + 60000"
KEYS = "MATCH (s:HarnessSpacing) RETURN s.key"


@pytest.fixture
async def harness(neo4j_server: Neo4j, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Neo4jHarness]:
    monkeypatch.setattr(neo4j_store, "UPKEEP", 0.0)
    async with Neo4jHarness(neo4j_server.url()) as harness:
        yield harness


async def test_a_call_that_waited_for_a_lease_of_the_debounced_job_adds_a_new_one(
    harness: Neo4jHarness,
) -> None:
    first = await add(harness.store, debounced("old"))
    async with holding(harness, LEASE, id=first.id):
        calling = asyncio.create_task(add(harness.store, debounced("new")))
    second = await calling

    assert second.created
    assert (await look(harness.store, first.ref)).payload == "old"


async def test_a_call_that_waited_for_another_with_its_key_obeys_that(harness: Neo4jHarness) -> None:
    first = await add(harness.store, throttled("old"))
    await harness.rows(OVER, seconds=INTERVAL + 1)
    async with holding(harness, AGAIN, key="k"):
        calling = asyncio.create_task(add(harness.store, throttled("new")))
    second = await calling

    assert (second.created, second.ref) == (False, first.ref)
    assert await states(harness.store) == {"pending": 1}


async def test_there_is_one_node_a_key_and_a_recovery_deletes_those_that_are_over(
    harness: Neo4jHarness,
) -> None:
    for _ in range(2):
        await harness.store.enqueue([throttled(key="old"), debounced(key="again")])
    await harness.rows(OVER, seconds=INTERVAL + 1)
    await harness.store.enqueue([throttled(key="young")])
    assert len(await harness.rows(KEYS)) == 3

    async with holding(harness, AGAIN, key="again"):
        recovering = asyncio.create_task(harness.store.reclaim(Recovery("reaper", 60.0, 10)))
    await recovering

    assert sorted(await harness.rows(KEYS)) == [("again",), ("young",)]


async def test_an_embedding_job_is_not_spaced(harness: Neo4jHarness) -> None:
    about = {"entity_uid": "e1", "model": "m", "version": 1}
    job = NewJob(queue="embedding", task="embed", id="e1", key="e1", payload=about, throttle=60.0)

    with pytest.raises(ConfigError, match="one for each entity, model and version anyway; leave them out"):
        await harness.store.enqueue([job])
