"""Embedding jobs in a database of their own: the graph does not notice them, and they do not notice the graph."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from neo4j import GraphDatabase
from support.command import unstuck
from support.embeddings import DAYS
from support.embeddings import embedding as profile
from support.neo4j import PASSWORD, Neo4j
from support.waiting import until_async
from support.work import at_work

from unstuck import (
    ConfigError,
    Filter,
    Jobs,
    Rate,
    Retry,
    Status,
    Unstuck,
    Worker,
    current_job,
    neo4j_url,
    open_store,
)
from unstuck.protocol.job import NewJob
from unstuck.protocol.leases import Share
from unstuck.protocol.outcome import completed, failed
from unstuck.protocol.store import Store
from unstuck.testing import Neo4jHarness
from unstuck.testing.conformance.given import trouble

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

GRAPH = """
UNWIND range(1, 50) AS n
CREATE (a:Entity {name: 'e' + n, entityType: 'thing', validFrom: n})-[:RELATES_TO {strength: n / 50.0}]->(:Entity {name: 'f' + n})
"""
EXPORT = """
MATCH (n) OPTIONAL MATCH (n)-[r]->(m)
RETURN elementId(n), labels(n), properties(n), type(r), properties(r), elementId(m) ORDER BY elementId(n), elementId(r)
"""


@pytest.fixture
async def harness(neo4j_server: Neo4j) -> AsyncIterator[Neo4jHarness]:
    async with Neo4jHarness(neo4j_server.url(), label="EmbedJob") as harness:
        yield harness


@pytest.fixture
def graph(graph_server: Neo4j) -> Neo4j:
    graph_server.execute("MATCH (n) DETACH DELETE n")
    graph_server.execute(GRAPH)
    return graph_server


@asynccontextmanager
async def jobs_of(server: Neo4j, username: str = "neo4j", password: str = PASSWORD) -> AsyncIterator[Jobs]:
    """Those in its database for embedding jobs, which need not exist yet."""
    async with Jobs.open(neo4j_url(server.uri, username, password), create=True) as jobs:
        yield jobs


def embedding(entity: str, **facts: Any) -> NewJob:
    payload = {"entity_uid": entity, "model": "m", "version": "1"}
    return NewJob(queue="embedding", task="embed", id=f"job of {entity}", payload=payload, **facts)


async def workload(jobs: Jobs, store: Store) -> None:
    """A bit of everything that can happen to a job."""
    await jobs.enqueue([embedding(f"e{n}", max_attempts=1 + n % 2) for n in range(1, 51)])
    taken = await store.lease({"embedding": Share(300.0, 40)}, 40, "w")
    await store.settle([completed(job.lease, [0.5]) for job in taken[:20]])
    await store.settle([failed(job.lease, trouble()) for job in taken[20:30]])
    assert await jobs.release_jobs([job.id for job in taken[30:35]], "w") == 5
    assert await jobs.retry_failed_jobs() == 10
    await jobs.recover_stale_jobs()
    await jobs.cleanup_jobs(days=0)


def last_transaction(server: Neo4j) -> frozenset[str]:
    """A bookmark: it says which transaction is the last that the database has committed."""
    with GraphDatabase.driver(server.uri) as driver, driver.session(database=server.database) as session:
        session.run("RETURN 1").consume()
        return session.last_bookmarks().raw_values


@pytest.mark.accepts("EMB-003", "EMB-005", "EMB-006")
async def test_a_workload_leaves_the_graph_without_a_job_and_without_a_transaction(
    harness: Neo4jHarness, neo4j_server: Neo4j, graph: Neo4j
) -> None:
    last = last_transaction(graph)
    graph.execute("MATCH (e:Entity {name: 'e1'}) SET e.seen = true")
    before, number = graph.execute(EXPORT), last_transaction(graph)
    assert number != last, "bookmarks tell nothing"

    async with jobs_of(neo4j_server) as jobs:
        await workload(jobs, harness.store)
        status = await jobs.get_queue_status()

    assert status == {"pending": 25, "processing": 5, "completed": 0, "failed": 0}
    assert graph.execute(
        "MATCH (n) WHERE any(l IN labels(n) WHERE l STARTS WITH 'EmbedJob') RETURN count(n)"
    ) == [(0,)]
    assert last_transaction(graph) == number
    assert graph.execute(EXPORT) == before
    assert (await harness.rows("MATCH (j:EmbedJob) RETURN count(j)")) == [(30,)]


@pytest.mark.accepts("EMB-007", "EMB-008")
async def test_wiping_the_queues_database_leaves_the_graph_intact_and_init_rebuilds_it(
    harness: Neo4jHarness, neo4j_server: Neo4j, graph: Neo4j, tmp_path: Path
) -> None:
    async with jobs_of(neo4j_server) as jobs:
        await workload(jobs, harness.store)
    backup = graph.execute(EXPORT)
    assert not [row for row in backup if any(label.startswith("EmbedJob") for label in row[1])]

    await harness.rows("MATCH (n) DETACH DELETE n")
    for kind, name in await harness.rows("SHOW CONSTRAINTS YIELD name RETURN 'CONSTRAINT', name"):
        await harness.rows(f"DROP {kind} {name}")
    answer = await asyncio.to_thread(
        unstuck,
        tmp_path,
        "init",
        "--uri",
        neo4j_server.uri,
        "--username",
        "neo4j",
        "--password",
        PASSWORD,
        store=None,
    )

    assert answer.returncode == 0, answer.stderr
    assert graph.execute(EXPORT) == backup
    async with jobs_of(neo4j_server) as jobs:
        assert sum((await jobs.get_queue_status()).values()) == 0
        [again] = await jobs.enqueue([embedding("e1")])
        assert again.created


@pytest.mark.accepts("EMB-004")
async def test_a_worker_finds_the_database_by_its_own_address_name_and_credentials(
    harness: Neo4jHarness, neo4j_server: Neo4j, graph: Neo4j, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DAYS, "14")  # its worker does not start without

    async with Unstuck(neo4j_url(neo4j_server.uri, "neo4j", PASSWORD)) as app:
        app.queue("embedding", **profile())

        @app.task(name="embed", queue="embedding")
        async def embed(entity_uid: str, model: str, version: str) -> str:
            return f"{entity_uid} {model} {version}"

        async with jobs_of(neo4j_server) as jobs:
            await jobs.enqueue([embedding("Ann"), embedding("Bob")])
            async with at_work(app):
                await until_async(lambda: _completed(jobs, 2), 60, "both jobs to be completed")
            found = (await jobs.find(Filter(status=Status.COMPLETED))).jobs
            health = await jobs.get_health_status()

    assert sorted(job.result for job in found) == ["Ann m 1", "Bob m 1"]
    assert health.status == "HEALTHY"
    there = "MATCH (j:EmbedJob {status: 'completed'}) CALL db.info() YIELD name RETURN name, count(j)"
    assert await harness.rows(there) == [("embedding-jobs", 2)]
    with pytest.raises(ConfigError, match="there is no database 'embedding-jobs'"):
        async with jobs_of(graph):  # it has one, neo4j
            pass
    for credentials in ({"username": "another"}, {"password": "another"}):
        with pytest.raises(ConfigError, match="refuses us"):
            async with jobs_of(neo4j_server, **credentials):
                pass


@pytest.mark.accepts("EMB-002")
async def test_a_worker_leaves_leased_jobs_alone_tries_again_and_keeps_to_the_rate(
    harness: Neo4jHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DAYS, "14")  # its worker does not start without
    jobs = Jobs(harness.store)
    tries: list[tuple[str, int, str | None]] = []

    async with Unstuck(harness.url) as app:
        app.queue("embedding", **profile(rate=Rate(2)))

        @app.task(name="embed", queue="embedding", retry=Retry(backoff=(0.0,)))
        async def embed(entity_uid: str, model: str, version: str) -> None:
            job = await jobs.get(current_job().id)
            tries.append((entity_uid, job.attempts, job.owner))
            if entity_uid == "Bob" and job.attempts == 1:
                raise ConnectionResetError("gone")

        await jobs.enqueue([embedding(name) for name in ("Ann", "Bob", "Cyd", "Dan")])
        [theirs] = await harness.store.lease({"embedding": Share(300.0, 1)}, 1, "another")
        first, second = Worker(app), Worker(app)
        ran = [await worker.process_jobs(10) for worker in (first, second)]
        await harness.age(61)
        ran.append(await second.process_jobs(10))
        status = await jobs.get_queue_status()

    assert theirs.id == "job of Ann"
    assert ran == [2, 0, 2]  # in a minute
    assert sorted(tries) == [
        ("Bob", 1, first.id), ("Bob", 2, second.id), ("Cyd", 1, first.id), ("Dan", 1, second.id),
    ]  # fmt: skip
    assert status == {"pending": 0, "processing": 1, "completed": 3, "failed": 0}


async def _completed(jobs: Jobs, number: int) -> bool:
    return (await jobs.get_queue_status())["completed"] == number


@pytest.mark.accepts("EMB-142", "EMB-143", "EMB-141")
async def test_the_schema_has_the_constraints_and_indexes_that_it_must(harness: Neo4jHarness) -> None:
    unique = await harness.rows(
        "SHOW CONSTRAINTS YIELD labelsOrTypes, properties, type WHERE labelsOrTypes = ['EmbedJob'] "
        "RETURN properties, type"
    )
    indexed = await harness.rows(
        "SHOW INDEXES YIELD labelsOrTypes, properties, state WHERE labelsOrTypes = ['EmbedJob'] RETURN properties, state"
    )

    assert sorted(unique) == [(["entity_uid", "model", "version"], "UNIQUENESS"), (["id"], "UNIQUENESS")]
    assert {state for _, state in indexed} == {"ONLINE"}
    properties = [names for names, _ in indexed]
    assert ["status"] in properties
    assert ["lock_until"] in properties
    assert ["queue", "rank", "seq"] in properties
    async with open_store(harness.url) as store:
        await store.enqueue([embedding("Ann")])
        await store.enqueue([embedding("Ann")])
    assert await harness.rows("MATCH (j:EmbedJob) RETURN count(j)") == [(1,)]
