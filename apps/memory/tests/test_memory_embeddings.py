"""Memory knows which entities lack their embeddings, without reading the others."""

import pytest
from support_memory.conformance.given import embed, more, new, vector
from support_memory.jobs import Recorded
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.memory import Memory
from unstuck_memory.vectors import Model

pytestmark = pytest.mark.anyio
MODEL = Model("twelve", 12)


@pytest.mark.accepts("EMB-110", "EMB-111", "EMB-118")
async def test_only_current_entities_without_an_embedding_are_found(
    memory: Memory, file_graph: SqliteGraph
) -> None:
    written = await memory.create_entities([new(name) for name in ("lacks", "has", "had", "deleted")])
    lacking = await memory.get_entities_without_embeddings()
    assert {one.name for one in lacking} == {"lacks", "has", "had", "deleted"}
    for entity in written.entities[1:3]:
        await embed(file_graph, entity, vector())
    await memory.add_observations([more("had", "is another version now")])
    await memory.delete_entities(["deleted"])

    found = await memory.get_entities_without_embeddings(100)
    assert [(one.name, one.version, one.valid_to) for one in found] == [("lacks", 1, None), ("had", 2, None)]
    coverage = await memory.coverage()
    assert (coverage.entities, coverage.embedded) == (3, 1)
    embedding = await memory.get_entity_embedding("has")
    assert embedding is not None
    assert (embedding.model, embedding.version) == (MODEL, 1)
    assert await memory.get_entity_embedding("had") is None
    assert await memory.get_entity_embedding("deleted") is None


@pytest.mark.accepts("EMB-112", "EMB-114", "EMB-117")
async def test_at_most_the_limit_come_back_and_none_that_was_deleted(
    memory: Memory, file_graph: SqliteGraph
) -> None:
    for begin in range(0, 1100, 100):
        await memory.create_entities([new(f"{number:04}") for number in range(begin, begin + 100)])
    await memory.delete_entities([f"{number:04}" for number in range(100)])
    other = Memory(file_graph, "other", Recorded())
    await other.create_entities([new("of another project")])

    assert len(await memory.get_entities_without_embeddings()) == 10
    found = await memory.get_entities_without_embeddings(50)
    assert len(found) == 50
    assert all(one.valid_to is None for one in found)
    hundred = await memory.get_entities_without_embeddings(100)
    assert sorted(one.name for one in hundred) == [f"{number:04}" for number in range(100, 200)]
    assert len(await memory.get_entities_without_embeddings(1000)) == 1000
    assert [one.name for one in await other.get_entities_without_embeddings(1000)] == ["of another project"]
