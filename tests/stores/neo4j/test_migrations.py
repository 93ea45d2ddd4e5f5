"""Migrations of Neo4j, beside a release that knows only the schema before."""

from collections.abc import AsyncIterator

import pytest
from support.neo4j import Neo4j

from unstuck.protocol.leases import Recovery
from unstuck.protocol.outcome import Settled, completed
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import enqueued, leased, look, one_leased
from unstuck.testing.conformance.spacing import throttled

# Whoever comes first waits for the server's start, too.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

RULES = "SHOW INDEXES YIELD name, labelsOrTypes WHERE labelsOrTypes[0] STARTS WITH 'GrownRecord' RETURN name"
SPACING = RULES.replace("Record", "Spacing")
SCHEMA = "MATCH (s:GrownStore) RETURN s.version, s.applied"

# How it leases a job.
TAKE = """
MATCH (j:Grown {job_id: $id}) SET j += {status: 'processing', rank: null, attempts: j.attempts + 1, fence: 5,
  lock_owner: 'old', lock_until: timestamp() + 3600000, heartbeat_at: timestamp(), started_at: timestamp()}
"""


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[Neo4jHarness]:
    async with Neo4jHarness(neo4j_server.url(), label="Grown") as harness:
        yield harness


async def test_records_come_to_a_database_while_a_release_that_has_none_works_on_it(
    harness: Neo4jHarness,
) -> None:
    rules = sorted(name for (name,) in await harness.rows(RULES))
    assert rules == ["GrownRecordKind_name", "GrownRecord_age", "GrownRecord_name"]
    for name in ("GrownRecordKind_name", "GrownRecord_name"):
        await harness.rows(f"DROP CONSTRAINT {name}")
    await harness.rows("DROP INDEX GrownRecord_age")
    await harness.rows("DROP INDEX Grown_expires")
    await harness.rows("MATCH (s:GrownStore) REMOVE s.applied SET s.version = 1")
    job = await one_leased(harness.store)
    assert ("schema version 1 of 4", "run: unstuck init") in [
        (finding.what, finding.fix) for finding in await harness.store.checkup()
    ]

    await harness.store.migrate()

    assert sorted(name for (name,) in await harness.rows(RULES)) == rules
    assert await harness.rows(SCHEMA) == [(1, 4)], "a release that knows version 1 refuses any later one"
    assert (await harness.store.keep("k", "n", 1)).applied
    assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]


async def test_spacing_comes_to_a_database_while_a_release_that_has_none_works_on_it(
    harness: Neo4jHarness,
) -> None:
    rules = sorted(name for (name,) in await harness.rows(SPACING))
    assert rules == ["GrownSpacing_end", "GrownSpacing_key"]
    await harness.rows("DROP CONSTRAINT GrownSpacing_key")
    await harness.rows("DROP INDEX GrownSpacing_end")
    await harness.rows("MATCH (s:GrownStore) SET s.applied = 2")
    job = await one_leased(harness.store)

    await harness.store.migrate()

    assert sorted(name for (name,) in await harness.rows(SPACING)) == rules
    assert await harness.rows(SCHEMA) == [(1, 4)]
    answers = await harness.store.enqueue([throttled(), throttled()])
    assert [answer.created for answer in answers] == [True, False]
    assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]


async def test_a_schema_of_a_later_release_stays_as_it_is(harness: Neo4jHarness) -> None:
    await harness.rows("MATCH (s:GrownStore) SET s.applied = 9")
    try:
        await harness.store.migrate()
        assert await harness.rows(SCHEMA) == [(1, 9)]
        assert (await harness.store.checkup())[0].what.startswith("schema version 9 in database ")
    finally:
        await harness.rows("MATCH (s:GrownStore) SET s.applied = 4")


async def test_a_release_that_knows_no_expiry_works_beside_ours(harness: Neo4jHarness) -> None:
    """What it enqueues does not expire. What it takes late is its to end."""
    [ours] = await enqueued(harness.store)
    assert (await look(harness.store, ours)).expires_at is None, "a node as that release makes it"
    [late] = await enqueued(harness.store, expires=0.001)

    await harness.rows(TAKE, id=late.id)

    assert (await harness.store.reclaim(Recovery("reaper", 10.0, 10))).jobs == []
    assert (await look(harness.store, late)).attempts == 1
    assert [job.id for job in await leased(harness.store, 5)] == [ours.id]
