"""How writers on Neo4j wait for each other: locks, deadlocks, the line, and constraints that hold against anybody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import neo4j
import pytest
from neo4j.exceptions import ClientError, ConstraintError
from support.neo4j import GRAPH, Neo4j
from support.waiting import until_async
from support_memory.conformance.given import changed, connected, created, more, names, new, one, related
from support_memory.places import Place
from unstuck_memory.errors import GraphUnavailable
from unstuck_memory.graph import Graph
from unstuck_memory.graphs.neo4j import client as client_module

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

LOCK = "MATCH (e:Entity {project: $project, name: $name}) SET e.entity_type = e.entity_type"
WAITING = "SHOW TRANSACTIONS YIELD status WHERE status STARTS WITH 'Blocked' RETURN count(*)"
OPEN = "SHOW TRANSACTIONS YIELD currentQuery WHERE NOT currentQuery STARTS WITH 'SHOW' RETURN count(*)"


@pytest.fixture
def place(neo4j_place: Place) -> Place:
    return neo4j_place


@pytest.fixture
async def driver(graph_server: Neo4j) -> AsyncIterator[neo4j.AsyncDriver]:
    async with neo4j.AsyncGraphDatabase.driver(graph_server.uri) as driver:
        yield driver


@asynccontextmanager
async def _holding(
    driver: neo4j.AsyncDriver, project: str, name: str
) -> AsyncIterator[neo4j.AsyncTransaction]:
    """Somebody holds an entity until he commits."""
    async with driver.session(database=GRAPH) as session, await session.begin_transaction() as tx:
        await (await tx.run(LOCK, project=project, name=name)).consume()
        yield tx


async def _count(driver: neo4j.AsyncDriver, text: str) -> int:
    [record] = (await driver.execute_query(text, database_=GRAPH)).records
    return int(record[0])


async def _until_waiting(driver: neo4j.AsyncDriver, count: int) -> None:
    async def waiting() -> bool:
        return await _count(driver, WAITING) == count

    await until_async(waiting, 30, f"{count} transactions to wait for a lock")


@pytest.mark.parametrize("way", ["create", "add"])
async def test_a_change_is_made_of_what_the_one_before_it_left(
    graph: Graph, driver: neo4j.AsyncDriver, project: str, way: str
) -> None:
    """What was read before the lock was granted is out of date, and so is the time."""
    await created(graph, project, new("Ann", "a"))
    async with _holding(driver, project, "Ann") as tx:
        call = (
            created(graph, project, new("Ann", "b"))
            if way == "create"
            else graph.add_observations(project, [more("Ann", "b")])
        )
        change = asyncio.create_task(call)
        await _until_waiting(driver, 1)
        text = "MATCH (e:Entity {project: $project}) SET e.observations = ['x'], e.version = 7, e.valid_from = timestamp()"
        await (await tx.run(text, project=project)).consume()
        before = await graph.now()
        await tx.commit()
    await change
    entity = await one(graph, project, "Ann")
    assert (entity.version, entity.observations) == (8, ("x", "b"))
    assert entity.valid_from >= before


async def test_the_victim_of_a_deadlock_tries_again(
    graph: Graph, driver: neo4j.AsyncDriver, project: str
) -> None:
    """Ours holds ``a`` and then wants ``c``, whose holder waits for ``a``: that one has more to lose, so ours is undone."""
    await created(graph, project, "a", "b", "c", *(f"x{number}" for number in range(20)))
    async with _holding(driver, project, "c") as other, _holding(driver, project, "b") as third:
        ours = asyncio.create_task(graph.delete_entities(project, ["c", "a", "b"]))
        await _until_waiting(driver, 1)
        for number in range(20):
            await (await other.run(LOCK, project=project, name=f"x{number}")).consume()
        theirs = asyncio.create_task(other.run(LOCK, project=project, name="a"))
        await _until_waiting(driver, 2)
        await third.commit()
        await (await theirs).consume()  # which is granted once ours is undone
        await other.commit()
    assert await ours == [True, True, True]
    assert len(await graph.list_entities(project, 100)) == 20


async def test_two_write_and_the_others_wait_outside_of_any_transaction(
    graph: Graph, driver: neo4j.AsyncDriver, project: str
) -> None:
    await created(graph, project, new("Ann"))
    async with _holding(driver, project, "Ann") as tx:
        changes = [asyncio.create_task(changed(graph, project, "Ann", str(number))) for number in range(10)]
        await _until_waiting(driver, 2)
        assert await _count(driver, OPEN) == 2 + 1
        assert names(await graph.list_entities(project, 10)) == ["Ann"], "reading waits for nobody"
        await tx.commit()
    await asyncio.gather(*changes)
    entity = await one(graph, project, "Ann")
    assert (entity.version, len(entity.observations)) == (11, 10)
    assert entity.observations[0] in {"0", "1"}, "those that came first were in the line's front"


async def test_a_lock_that_is_held_too_long_makes_the_graph_unavailable(
    graph: Graph, driver: neo4j.AsyncDriver, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await created(graph, project, new("Ann"))
    monkeypatch.setattr(client_module, "PATIENCE", 1.0)
    async with _holding(driver, project, "Ann"):
        with pytest.raises(GraphUnavailable, match="try again later"):
            await changed(graph, project, "Ann", "a")
    assert (await changed(graph, project, "Ann", "b")).observations == ("b",)


@pytest.mark.parametrize(
    "text",
    [
        "MATCH (e:Entity {project: $project, name: 'Ann'}) CREATE (:Entity {project: $project, name: 'Ann'})",
        "MATCH (e:Entity {project: $project, name: 'Ann'}) CREATE (:EntityId {uid: e.uid})",
        "MATCH (e:Entity {project: $project, name: 'Ann'}) CREATE (:EntityVersion {uid: e.uid, version: e.version})",
        "MATCH (a)-[r:RELATES {project: $project}]->(b) CREATE (a)-[p:RELATES]->(b) SET p = properties(r), p.uid = 'another'",
        "MATCH (v:EmbeddingVector) WITH v LIMIT 1 CREATE (:EmbeddingVector {model: v.model, hash: v.hash})",
    ],
)
async def test_what_must_be_unique_is_so_for_anybody(
    graph: Graph, driver: neo4j.AsyncDriver, project: str, text: str
) -> None:
    await created(graph, project, "Ann", "Bob")
    await connected(graph, project, related("Ann", "Bob"))
    await driver.execute_query("MERGE (:EmbeddingVector {model: 0, hash: 'x'})", database_=GRAPH)
    with pytest.raises((ConstraintError, ClientError), match="already exists"):
        await driver.execute_query(text, project=project, database_=GRAPH)
