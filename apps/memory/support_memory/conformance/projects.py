"""Projects never see each other, whatever is done in one of them."""

import pytest
from unstuck_memory.errors import NotFound
from unstuck_memory.graph import Graph

from support_memory.conformance.given import (
    MODEL,
    connected,
    created,
    embed,
    exported,
    key,
    more,
    names,
    new,
    related,
    vector,
)


async def _filled(graph: Graph, project: str, word: str) -> None:
    """The same names everywhere, with other observations."""
    await created(graph, project, new("Ann", f"likes {word}", kind=word), new("Bob", word), new(word))
    await connected(
        graph, project, related("Ann", "Bob", strength=0.1, metadata={"of": word}), related("Ann", word)
    )


async def test_nothing_is_read_from_another_project(graph: Graph, project: str) -> None:
    other = f"{project}-other"
    await _filled(graph, other, "tea")
    [ann] = await graph.get_entities(other, ["Ann"])

    assert await graph.get_entities(project, ["Ann", "Bob", "tea"]) == []
    assert await graph.list_entities(project, 10) == []
    assert await graph.list_entities(project, 10, at=ann.valid_from) == []
    assert await graph.relations_of(project, ["Ann", "Bob", "tea"]) == []
    assert await graph.relations_of(project, ["Ann"], at=await graph.now()) == []
    assert await graph.get_relation(project, key("Ann", "Bob")) is None
    assert await graph.entity_history(project, "Ann") == []
    assert await graph.relation_history(project, key("Ann", "Bob")) == []
    assert await exported(graph, project) == []
    size = await graph.size(project)
    assert (size.entities, size.relations, size.archived) == (0, 0, 0)
    purged = await graph.purge(project, 0)
    assert (purged.entities, purged.relations) == (0, 0)


async def test_names_and_relations_are_a_projects_own(graph: Graph, project: str) -> None:
    other = f"{project}-other"
    await _filled(graph, project, "tea")
    await _filled(graph, other, "rum")

    for place, word in ((project, "tea"), (other, "rum")):
        assert names(await graph.list_entities(place, 10)) == sorted(["Ann", "Bob", word])
        [ann] = await graph.get_entities(place, ["Ann"])
        assert (ann.entity_type, ann.observations, ann.version) == (word, (f"likes {word}",), 1)
        found = await graph.relations_of(place, ["Ann", "Bob", "tea", "rum"])
        assert [(one.to, one.metadata) for one in found] == [("Bob", {"of": word}), (word, None)]
    [answer] = await graph.create_entities(project, [new("RUM")])
    assert answer.similar is None, "that one is of the other project"


async def test_nothing_is_written_in_another_project(graph: Graph, project: str) -> None:
    other = f"{project}-other"
    await _filled(graph, other, "tea")
    before = await exported(graph, other)
    await created(graph, project, "Cid")

    [added] = await graph.add_observations(project, [more("Ann", "x")])
    [deleted] = await graph.delete_observations(project, [more("Ann", "likes tea")])
    [connected] = await graph.create_relations(project, [related("Cid", "Ann")])
    assert None not in {added.problem, deleted.problem, connected.problem}
    assert await graph.delete_entities(project, ["Ann"]) == [False]
    assert await graph.delete_relations(project, [key("Ann", "Bob")]) == [False]
    with pytest.raises(NotFound):
        await graph.update_relation(project, related("Ann", "Bob", strength=0.9))
    for source, into in (("Ann", "Cid"), ("Cid", "Ann"), ("Ann", "Bob")):
        with pytest.raises(NotFound):
            await graph.merge_entities(project, source, into)
    await created(graph, project, new("Ann", "is another"), "Bob")
    await graph.delete_entities(project, ["Ann", "Bob", "tea"])
    await graph.purge(project, 0)
    assert await exported(graph, other) == before


async def test_search_stays_in_its_project(graph: Graph, project: str) -> None:
    other = f"{project}-other"
    await graph.use_model(MODEL)
    await _filled(graph, other, "tea")
    for entity in await graph.list_entities(other, 10):
        await embed(graph, entity, vector())

    assert await graph.keyword(project, ["tea", "Ann"], 10) == []
    assert await graph.nearest(project, MODEL, vector(), 10) == []
    [cid] = await created(graph, project, new("Cid", "tea"))
    await embed(graph, cid, vector(-0.5))
    assert [hit.uid for hit in await graph.keyword(project, ["tea", "Ann"], 1)] == [cid.uid]
    assert [hit.uid for hit in await graph.nearest(project, MODEL, vector(), 1)] == [cid.uid]
    coverage = await graph.coverage(project, MODEL)
    assert (coverage.entities, coverage.embedded) == (1, 1)
    await created(graph, other, "uncovered")
    assert await graph.without_embeddings(MODEL, 10, project=project) == []
    coverage = await graph.coverage(other, MODEL)
    assert (coverage.entities, coverage.embedded) == (4, 3)
