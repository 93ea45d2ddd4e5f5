"""What a graph in Neo4j does if its server, the way to it or the database is not what it should be."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from support.neo4j import GRAPH, PASSWORD, QUEUE, Neo4j
from support.proxy import Proxy
from support_memory.conformance.given import changed, created, names, new, one
from support_memory.places import Place
from unstuck_memory.errors import GraphDamaged, GraphUnavailable, SettingsError, UnstuckMemoryError
from unstuck_memory.graph import Graph
from unstuck_memory.graphs.neo4j import Neo4jGraph
from unstuck_memory.vectors import Model

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

COMMIT = b"\x00\x02\xb0\x12\x00\x00"  # as the protocol writes it


@pytest.fixture
def place(neo4j_place: Place) -> Place:
    return neo4j_place


@pytest.fixture
async def proxy(graph_server: Neo4j) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", graph_server.port) as proxy:
        yield proxy


@pytest.fixture
async def far(graph: Graph, proxy: Proxy) -> AsyncIterator[Neo4jGraph]:
    """A graph behind a network that breaks."""
    del graph  # has migrated
    async with Neo4jGraph(f"bolt://127.0.0.1:{proxy.port}", "neo4j", "", GRAPH) as far:
        yield far


@pytest.fixture
def note(graph: Graph, graph_server: Neo4j) -> Iterator[Neo4j]:
    """The server, whose note about the graph is put back after the test."""
    del graph
    [(birth, version)] = graph_server.execute("MATCH (g:MemoryGraph) RETURN g.birth, g.version")
    yield graph_server
    graph_server.execute("MATCH (g:MemoryGraph) DELETE g")
    text = "CREATE (:MemoryGraph {name: 'graph', birth: $birth, version: $version})"
    graph_server.execute(text, birth=birth, version=version)


async def _refused(graph: Graph, kind: type[UnstuckMemoryError]) -> str:
    with pytest.raises(kind) as refused:
        await graph.create_entities("p", [new("Ann")])
    assert type(refused.value) is kind
    assert "\n" not in str(refused.value)
    return str(refused.value)


async def test_a_connection_that_was_lost_is_made_again(far: Neo4jGraph, proxy: Proxy, project: str) -> None:
    await created(far, project, new("Ann", "a"))
    proxy.reset()
    assert (await changed(far, project, "Ann", "b")).observations == ("a", "b")
    proxy.reset()
    assert names(await far.list_entities(project, 10)) == ["Ann"]


async def test_a_server_that_cannot_be_reached_makes_the_graph_unavailable(
    far: Neo4jGraph, proxy: Proxy, project: str
) -> None:
    await created(far, project, "Ann")
    proxy.refuse()
    proxy.reset(new=True)
    for call in (created(far, project, "Bob"), far.list_entities(project, 10)):
        with pytest.raises(GraphUnavailable, match="try again later"):
            await call
    proxy.heal()
    assert names(await far.list_entities(project, 10)) == ["Ann"]
    assert names(await created(far, project, "Bob")) == ["Bob"]


async def test_a_commit_whose_answer_is_lost_is_not_made_twice(
    far: Neo4jGraph, graph: Graph, proxy: Proxy, project: str
) -> None:
    await created(far, project, new("Ann", "a"))
    proxy.drop_reply(to=COMMIT)
    with pytest.raises(GraphUnavailable, match="not known whether"):
        await changed(far, project, "Ann", "b")
    assert proxy.counts.replies_dropped == 1
    assert [entity.version for entity in await graph.entity_history(project, "Ann")] == [1, 2]
    [again] = await created(far, project, new("Ann", "b"))
    assert again.version == 2, "asked again, it is there already"


async def test_nothing_is_written_to_another_database_at_the_same_address(
    far: Neo4jGraph, note: Neo4j, project: str
) -> None:
    await created(far, project, "Ann")
    note.execute("MATCH (g:MemoryGraph) SET g.birth = 'another'")
    assert "another database" in await _refused(far, GraphUnavailable)
    assert names(await far.list_entities(project, 10)) == ["Ann"]


async def test_a_schema_of_a_newer_release_is_left_alone(graph: Graph, note: Neo4j) -> None:
    note.execute("MATCH (g:MemoryGraph) SET g.version = 99")
    assert "upgrade unstuck-memory" in await _refused(graph, GraphDamaged)
    with pytest.raises(GraphDamaged, match="99"):
        await graph.migrate()


async def test_a_database_without_a_graph_names_what_to_run(graph: Graph, note: Neo4j, project: str) -> None:
    note.execute("MATCH (g:MemoryGraph) DELETE g")
    assert "run unstuck-memory init" in await _refused(graph, GraphDamaged)
    assert await graph.list_entities(project, 10) == []


async def test_several_that_migrate_at_once_make_each_index_once(place: Place, note: Neo4j) -> None:
    every = {
        name
        for (name,) in note.execute("SHOW INDEXES YIELD name WHERE name STARTS WITH 'memory_' RETURN name")
    }
    note.execute("DROP CONSTRAINT memory_entity_name")
    note.execute("DROP INDEX memory_text")
    note.execute("DROP INDEX memory_version_time")
    note.execute("MATCH (g:MemoryGraph) DELETE g")

    async def migrate() -> str:
        async with place.graph() as graph:
            await graph.migrate()
            model = Model("migrated at once", 3)
            await graph.use_model(model)
            [(birth,)] = await asyncio.to_thread(note.execute, "MATCH (g:MemoryGraph) RETURN g.birth")
            return str(birth)

    assert len(set(await asyncio.gather(*(migrate() for _ in range(6))))) == 1
    found = note.execute("SHOW INDEXES YIELD name, state WHERE name STARTS WITH 'memory_' RETURN name, state")
    assert {name for name, _ in found} >= every
    assert {state for _, state in found} == {"ONLINE"}
    assert note.execute("MATCH (m:EmbeddingModel {name: 'migrated at once'}) RETURN count(m)") == [(1,)]


async def test_a_dropped_index_is_reported_and_made_again_by_init(
    graph: Graph, graph_server: Neo4j, project: str
) -> None:
    graph_server.execute("DROP INDEX memory_text")
    with pytest.raises(GraphDamaged, match="run unstuck-memory init"):
        await graph.keyword(project, ["word"], 5)
    await graph.migrate()
    await created(graph, project, new("Ann", "word"))
    assert len(await graph.keyword(project, ["word"], 5)) == 1


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1:7474", "nonsense", "bolt://", "bolt://somebody:secret@127.0.0.1:7687"]
)
async def test_an_address_that_is_none_is_a_setting_to_correct(uri: str) -> None:
    with pytest.raises(SettingsError, match="the graph's address") as refused:
        async with Neo4jGraph(uri, "neo4j", "", GRAPH):
            pass
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


async def test_a_database_that_is_not_there_is_a_setting_to_correct(graph_server: Neo4j) -> None:
    async with Neo4jGraph(graph_server.uri, "neo4j", "", "nobody") as graph:
        assert "'nobody'" in await _refused(graph, SettingsError)


async def test_a_wrong_password_is_a_setting_to_correct(queue_server: Neo4j) -> None:
    async with Neo4jGraph(queue_server.uri, "neo4j", "wrong-secret", QUEUE) as graph:
        message = await _refused(graph, SettingsError)
        assert "password" in message
        assert "wrong-secret" not in message
    async with Neo4jGraph(queue_server.uri, "neo4j", "", QUEUE) as graph:
        await _refused(graph, SettingsError)


async def test_a_user_with_a_password_has_a_graph(queue_server: Neo4j, project: str) -> None:
    async with Neo4jGraph(queue_server.uri, "neo4j", PASSWORD, QUEUE) as graph:
        await graph.migrate()
        await graph.migrate()
        await created(graph, project, new("Ann", "a"))
        assert (await one(graph, project, "Ann")).observations == ("a",)
    with pytest.raises(GraphUnavailable, match="async with"):
        await graph.now()
