"""How statements on Neo4j find what they are about: by index, however much lies beside it."""

from collections.abc import AsyncIterator
from typing import Any

import neo4j
import pytest
from support.neo4j import GRAPH, Neo4j
from support_memory.conformance.given import MODEL, connected, created, embed, new, related, vector
from support_memory.places import Place
from unstuck_memory.graph import Graph
from unstuck_memory.graphs.neo4j.client import PACKAGE, bare
from unstuck_memory.graphs.statements import statements
from unstuck_memory.vectors import Model

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

MANY = 100_000
STATEMENTS = statements(PACKAGE, "cypher")
# Models are few, and the graph is one.
FEW = {"begin", "models"}
KEY = {"uid": "a", "from_uid": "a", "to_uid": "b", "relation_type": "t", "version": 1}
NODE = {"uid": "a", "name": "a", "folded": "a", "version": 1, "model": 1, "hash": "x"}
PARAMS: dict[str, Any] = {
    "project": "p", "name": "a", "uid": "a", "from": "a", "to": "b", "type": "t", "after": "", "at": 5, "before": 5, "limit": 10,
    "model": 1, "models": 1, "number": 99, "dimension": 3, "fence": "fence_1", "index": "memory_vectors_1", "reach": 10, "query": "a",
    "counted": 10, "uids": ["a"], "names": ["a"], "types": ["t"], "fences": ["fence_1"], "hashes": ["x"], "keys": [KEY],
    "relations": [KEY], "states": [KEY | {"valid_from": 1}], "ends": [KEY], "takers": [NODE], "ids": [NODE], "versions": [NODE],
    "vectors": [NODE | {"vector": [1.0]}], "words": [{"phrase": "a", "terms": 1}],
    "chunks": [NODE | {"number": 0, "observation": None}], "vector": [1.0],
}  # fmt: skip
# The last few lack an embedding.
FILL = """
UNWIND range(1, $count) AS n
CALL (n) {
  CREATE (:EntityId:EntityVersion:Entity {
    uid: $project + n, project: $project, name: 'entity ' + n, folded: 'entity' + n, entity_type: 'thing', observations: [], version: 1,
    created_at: n, updated_at: n, valid_from: n, models: $models, fence_NUMBER: CASE WHEN n <= $count - $lacking THEN 1 END,
    missing_NUMBER: CASE WHEN n > $count - $lacking THEN right('000000000000000' + n, 16) + ' ' + $project + n END
  })
} IN TRANSACTIONS OF 5000 ROWS
"""


@pytest.fixture
def place(neo4j_place: Place) -> Place:
    return neo4j_place


@pytest.fixture
async def driver(graph_server: Neo4j) -> AsyncIterator[neo4j.AsyncDriver]:
    async with neo4j.AsyncGraphDatabase.driver(graph_server.uri) as driver:
        yield driver


async def _plan(driver: neo4j.AsyncDriver, text: str, params: dict[str, Any]) -> tuple[list[str], int]:
    """The operators of a statement that is explained or profiled, and how often it touched the store."""
    async with driver.session(database=GRAPH) as session, await session.begin_transaction() as tx:
        summary = await (await tx.run(text, params)).consume()
        await tx.rollback()
    operators, hits, plans = [], 0, [summary.profile or summary.plan]
    while plans:
        plan = plans.pop()
        assert plan is not None
        operators.append(str(plan["operatorType"]).split("@")[0])
        hits += plan.get("dbHits", 0)
        plans += plan.get("children", [])
    return operators, hits


def _text(name: str, number: int) -> str:
    return (
        bare(STATEMENTS[name])
        .replace("{number}", str(number))
        .replace("{of_types}", "AND e.entity_type IN $types")
    )


async def test_statements_look_up_what_they_are_about(
    graph: Graph, driver: neo4j.AsyncDriver, project: str
) -> None:
    await graph.use_model(MODEL)
    [entity, _] = await created(graph, project, new("Ann"), "Bob")
    await connected(graph, project, related("Ann", "Bob"))
    await embed(graph, entity, vector())
    number = await _number(driver, MODEL)
    for name in STATEMENTS:
        params = PARAMS | ({"names": [NODE]} if name == "find_taken" else {})
        operators, _ = await _plan(driver, f"EXPLAIN {_text(name, number)}", params)
        scans = {operator for operator in operators if "Scan" in operator}
        assert scans <= ({"NodeByLabelScan"} if name in FEW else set()), name


async def _number(driver: neo4j.AsyncDriver, model: Model) -> int:
    text = "MATCH (m:EmbeddingModel {name: $name}) RETURN m.number"
    [[number]] = (await driver.execute_query(text, name=model.name, database_=GRAPH)).records
    return int(number)


async def _filled(graph: Graph, driver: neo4j.AsyncDriver, project: str, count: int) -> tuple[Model, int]:
    """So many entities, of which the last twenty lack an embedding by a model of this test."""
    model = Model(f"model of {project}", 12)
    await graph.use_model(model)
    number = await _number(driver, model)
    params = {"count": count, "project": project, "models": number, "lacking": 20}
    async with driver.session(database=GRAPH) as session:
        await (await session.run(FILL.replace("NUMBER", str(number)), params)).consume()
    return model, number


async def _missing(driver: neo4j.AsyncDriver, project: str, number: int, limit: int) -> int:
    """How often the store is touched to find those without embeddings."""
    params = {"project": project, "after": "", "limit": limit}
    for name in ("without_embeddings", "without_embeddings_in"):
        operators, hits = await _plan(driver, f"PROFILE {_text(name, number)}", params)
        assert "NodeIndexSeekByRange" in operators or "NodeIndexSeek" in operators
        assert not {"Sort", "Top", "Filter"} & set(operators), "the index has their order"
    return hits


@pytest.mark.long
@pytest.mark.accepts("EMB-113", "EMB-115", "EMB-116")
async def test_those_without_embeddings_are_found_among_a_hundred_thousand(
    graph: Graph, driver: neo4j.AsyncDriver, graph_server: Neo4j, project: str
) -> None:
    model, number = await _filled(graph, driver, project, MANY)
    try:
        found = await graph.without_embeddings(model, 10, project=project)
        assert [one.name for one in found] == [f"entity {MANY - 19 + n}" for n in range(10)]
        assert len(await graph.without_embeddings(model, 100, project=project)) == 20
        # An index entry each, and its properties.
        assert await _missing(driver, project, number, 10) <= 10 * 20
        assert (await graph.coverage(project, model)).embedded == MANY - 20
    finally:
        text = "MATCH (e:Entity {project: $project}) CALL (e) { DELETE e } IN TRANSACTIONS OF 5000 ROWS"
        graph_server.execute(text, project=project)


@pytest.mark.accepts("EMB-113")
async def test_those_without_embeddings_are_found_by_an_index_of_only_those(
    graph: Graph, driver: neo4j.AsyncDriver, project: str
) -> None:
    model, number = await _filled(graph, driver, project, 500)
    assert len(await graph.without_embeddings(model, 1000, project=project)) == 20
    assert await _missing(driver, project, number, 1000) <= 21 * 20
