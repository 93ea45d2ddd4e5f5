"""Which entities lack vectors, and how many have them."""

import uuid

import pytest
from unstuck_memory.graph import Graph
from unstuck_memory.vectors import Model

from support_memory.conformance.given import MODEL, changed, created, embed, embedding, names, new, vector


@pytest.mark.accepts("EMB-111", "EMB-117", "EMB-118")
async def test_only_current_entities_without_an_embedding_are_missing(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    [ann, bob, _] = await created(graph, project, "Ann", "Bob", "gone")
    await graph.delete_entities(project, ["gone"])
    assert await graph.without_embeddings(MODEL, 100, project=project) == sorted(
        [ann, bob], key=lambda one: (one.valid_from, one.uid)
    )

    await embed(graph, ann, vector())
    assert await graph.without_embeddings(MODEL, 100, project=project) == [bob]
    await embed(graph, bob, vector())
    assert await graph.without_embeddings(MODEL, 100, project=project) == []
    later = await changed(graph, project, "Ann", "moved on")
    assert await graph.without_embeddings(MODEL, 100, project=project) == [later]
    assert await graph.store_embeddings([embedding(ann, vector())]) == [False]
    assert await graph.without_embeddings(MODEL, 100, project=project) == [later]
    await graph.delete_entities(project, ["Ann"])
    assert await graph.without_embeddings(MODEL, 100, project=project) == []


async def test_those_that_have_waited_longest_come_first(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    for name in ("c", "a", "b", "d"):
        [entity] = await created(graph, project, name)
        while await graph.now() <= entity.valid_from:
            pass
    await changed(graph, project, "c", "waits from now on")

    assert names(await graph.without_embeddings(MODEL, project=project)) == ["a", "b", "d", "c"]
    assert names(await graph.without_embeddings(MODEL, 2, project=project)) == ["a", "b"]


@pytest.mark.accepts("EMB-112", "EMB-114")
async def test_exactly_as_many_as_asked_for_of_a_thousand(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    for start in range(0, 1000, 100):
        await created(graph, project, *(f"thing {number}" for number in range(start, start + 100)))

    assert len(await graph.without_embeddings(MODEL, 50, project=project)) == 50
    assert len(await graph.without_embeddings(MODEL, project=project)) == 10, "the default"
    assert len(await graph.without_embeddings(MODEL, 50)) == 50
    assert len(await graph.without_embeddings(MODEL, 1, project=project)) == 1
    found = await graph.without_embeddings(MODEL, 1000, project=project)
    assert len({one.uid for one in found}) == 1000


async def test_pages_go_on_behind_the_last_whatever_became_of_it(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    entities = await created(graph, project, *(f"thing {number}" for number in range(10)))
    in_line = sorted(entities, key=lambda one: (one.valid_from, one.uid))

    first = await graph.without_embeddings(MODEL, 4, project=project)
    assert first == in_line[:4]
    await embed(graph, first[-1], vector())
    second = await graph.without_embeddings(MODEL, 4, project=project, after=first[-1])
    assert second == in_line[4:8]
    later = await changed(graph, project, second[-1].name, "moved on")
    third = await graph.without_embeddings(MODEL, 4, project=project, after=second[-1])
    assert third == [*in_line[8:], later]
    assert await graph.without_embeddings(MODEL, 4, project=project, after=third[-1]) == []


async def test_all_projects_are_looked_through_unless_one_is_named(graph: Graph, project: str) -> None:
    """By a model of its own, for which everything in the database is missing."""
    model = Model(f"model-{uuid.uuid4().hex[:12]}", 12)
    other = f"{project}-other"
    [ann] = await created(graph, project, "Ann")
    [bob] = await created(graph, other, "Bob")
    await graph.use_model(model)

    found: set[str] = set()
    page = await graph.without_embeddings(model, 1000)
    while {one.uid for one in page} - found:
        found |= {one.uid for one in page}
        page = await graph.without_embeddings(model, 1000, after=page[-1])
    assert page == []
    assert found >= {ann.uid, bob.uid}
    assert await graph.without_embeddings(model, 10, project=other) == [bob]


async def test_what_was_there_before_the_model_is_missing_too(graph: Graph, project: str) -> None:
    model = Model(f"model-{uuid.uuid4().hex[:12]}", 12)
    for start in range(0, 300, 100):
        await created(graph, project, *(f"old {number}" for number in range(start, start + 100)))
    await created(graph, project, "gone")
    await graph.delete_entities(project, ["gone"])
    await graph.use_model(model)
    [young] = await created(graph, project, "young")

    found = await graph.without_embeddings(model, 1000, project=project)
    assert len(found) == 301, "fewer than asked for means that there are no more"
    assert found == sorted(found, key=lambda one: (one.valid_from, one.uid))
    assert young in found
    for entity in found[:3]:
        await embed(graph, entity, vector(), model=model)
    assert await graph.without_embeddings(model, 5, project=project) == found[3:8]
    assert (await graph.coverage(project, model)).embedded == 3


async def test_an_old_entity_may_be_embedded_before_anybody_asks(graph: Graph, project: str) -> None:
    model = Model(f"model-{uuid.uuid4().hex[:12]}", 12)
    [ann, bob] = await created(graph, project, "Ann", "Bob")
    await graph.use_model(model)
    await embed(graph, ann, vector(), model=model)
    await changed(graph, project, "Bob", "moved on")
    assert names(await graph.without_embeddings(model, 10, project=project)) == ["Bob"]
    assert bob.version == 1


async def test_each_model_misses_its_own_vectors(graph: Graph, project: str) -> None:
    other = Model(f"model-{uuid.uuid4().hex[:12]}", 12)
    await graph.use_model(MODEL)
    await graph.use_model(other)
    [ann, bob] = await created(graph, project, "Ann", "Bob")
    await embed(graph, ann, vector())
    await embed(graph, bob, vector(), model=other)

    assert names(await graph.without_embeddings(MODEL, 10, project=project)) == ["Bob"]
    assert names(await graph.without_embeddings(other, 10, project=project)) == ["Ann"]
    await changed(graph, project, "Ann", "moved on")
    await changed(graph, project, "Bob", "moved on")
    assert len(await graph.without_embeddings(MODEL, 10, project=project)) == 2
    assert len(await graph.without_embeddings(other, 10, project=project)) == 2


async def test_coverage_counts_current_entities_and_those_with_vectors(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)

    async def covered() -> tuple[int, int]:
        coverage = await graph.coverage(project, MODEL)
        return coverage.embedded, coverage.entities

    assert await covered() == (0, 0)
    [ann, bob, gone] = await created(graph, project, new("Ann", "a"), "Bob", "gone")
    assert await covered() == (0, 3)
    await embed(graph, ann, vector(), vector())
    await embed(graph, gone, vector())
    assert await covered() == (2, 3)
    await graph.delete_entities(project, ["gone"])
    assert await covered() == (1, 2)
    await changed(graph, project, "Ann", "b")
    assert await covered() == (0, 2)
    await embed(graph, bob, vector())
    assert await covered() == (1, 2)
