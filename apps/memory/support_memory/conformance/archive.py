"""Archives: everything of a project, and back, the same."""

from typing import Any

import msgspec
import pytest
from unstuck_memory.archive_records import ArchiveRecord, EntityRecord, RelationRecord
from unstuck_memory.errors import InvalidInput
from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity

from support_memory.conformance.given import (
    FOREVER,
    MODEL,
    changed,
    coherent,
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


async def lived_in(graph: Graph, project: str) -> list[ArchiveRecord]:
    """A project to which everything happened that can; as it is exported."""
    await created(
        graph,
        project,
        new("Ann", "sings", "日本語 \U0001f600", kind="person", by="me"),
        new("Bob", kind="per\"s'on"),
        new("Cid", "x" * 10_000),
        new("gone", "was here"),
    )
    await connected(
        graph,
        project,
        related(
            "Ann", "Bob", strength=0.1, confidence=1 / 3, metadata={"ü": [1, 2.5, None]}, changed_by="me"
        ),
        related("Bob", "Ann"),
        related("Ann", "Ann", "sees", strength=0.0),
        related("Ann", "gone"),
        related("gone", "Cid", "likes", strength=1.0),
    )
    await changed(graph, project, "Ann", "cooks")
    await graph.delete_observations(project, [more("Ann", "sings")])
    await connected(graph, project, related("Ann", "Bob", strength=0.2, metadata={"b": {"c": []}}))
    await graph.update_relation(project, related("Bob", "Ann", confidence=0.5, changed_by="you"))
    await graph.delete_entities(project, ["gone"])
    await created(graph, project, new("gone", "is somebody else"))
    await connected(graph, project, related("Ann", "gone", strength=0.9))
    await graph.delete_relations(project, [key("Ann", "Ann", "sees")])
    return await coherent(graph, project)


async def test_an_archive_has_every_version_of_everything(graph: Graph, project: str) -> None:
    records = await lived_in(graph, project)
    entities = [record.entity for record in records if isinstance(record, EntityRecord)]
    relations = [record for record in records if isinstance(record, RelationRecord)]

    histories = [await graph.entity_history(project, name) for name in ("Ann", "Bob", "Cid", "gone")]
    assert {(one.uid, one.version): one for one in entities} == {
        (one.uid, one.version): one for history in histories for one in history
    }
    assert len(entities) == 3 + 1 + 1 + 2
    assert len(relations) == 2 + 2 + 1 + 1 + 1 + 1
    uids = {one.name: one.uid for one in entities if one.valid_to is None}
    [stated] = [one for one in relations if one.strength == 0.1]
    assert (stated.from_uid, stated.to_uid, stated.relation_type) == (uids["Ann"], uids["Bob"], "knows")
    assert (stated.confidence, stated.changed_by, stated.version) == (1 / 3, "me", 1)
    assert msgspec.json.decode(stated.metadata or "") == {"ü": [1, 2.5, None]}
    for record in records:
        assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


async def test_an_archive_comes_back_as_it_was(graph: Graph, elsewhere: Graph, project: str) -> None:
    """From the graph to a file, and from a file to the graph."""
    for at, of, to in (("there", graph, elsewhere), ("back", elsewhere, graph)):
        place = f"{project}-{at}"
        records = await lived_in(of, place)
        assert await to.restore(place, records) == len(records)

        assert await exported(to, place) == records
        everybody = names(await of.list_entities(place, 10))
        for record in records:
            then = record.entity.valid_from if isinstance(record, EntityRecord) else record.valid_from
            for when in (then, None):
                entities = await of.list_entities(place, 10, at=when)
                assert await to.list_entities(place, 10, at=when) == entities
                relations = await of.relations_of(place, everybody, at=when)
                assert await to.relations_of(place, everybody, at=when) == relations
        assert await to.size(place) == await of.size(place)


async def test_what_was_restored_lives_on(graph: Graph, elsewhere: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    await graph.restore(project, await lived_in(elsewhere, project))
    everybody = names(await elsewhere.list_entities(project, 10))

    assert sorted(names(await graph.without_embeddings(MODEL, 10, project=project))) == everybody
    [hit] = await graph.keyword(project, ["cooks"], 5)
    [ann] = await graph.get_by_uid([hit.uid])
    await embed(graph, ann, vector())
    assert [found.uid for found in await graph.nearest(project, MODEL, vector(), 5)] == [ann.uid]
    assert await graph.keyword(project, ["sings"], 5) == [], "only what is current is found"
    later = await changed(graph, project, "Ann", "lives on")
    assert (later.uid, later.version) == (ann.uid, ann.version + 1)
    [again] = await connected(graph, project, related("Ann", "Bob", confidence=0.7))
    assert (again.version, again.strength, again.confidence) == (3, 0.2, 0.7)
    await coherent(graph, project)


async def test_restoring_twice_adds_nothing(graph: Graph, elsewhere: Graph, project: str) -> None:
    records = await lived_in(elsewhere, project)
    entities = [record for record in records if isinstance(record, EntityRecord)]
    assert await elsewhere.restore(project, records) == 0
    assert await graph.restore(project, entities) == len(entities)
    assert await graph.restore(project, records) == len(records) - len(entities)
    assert await graph.restore(project, records) == 0
    assert await exported(graph, project) == await exported(elsewhere, project) == records


async def test_history_may_come_before_what_came_of_it(graph: Graph, elsewhere: Graph, project: str) -> None:
    """From two archives, of which the first ends in the middle of everything."""
    records = await lived_in(elsewhere, project)
    entities = [record.entity for record in records if isinstance(record, EntityRecord)]
    past = [EntityRecord(entity) for entity in entities if entity.valid_to is not None]
    known = {record.entity.uid for record in past}
    relations = [
        record for record in records if isinstance(record, RelationRecord) and record.valid_to is not None
    ]
    of_the_past = [one for one in relations if {one.from_uid, one.to_uid} <= known]
    assert of_the_past

    assert await graph.restore(project, [*past, *of_the_past]) == len(past) + len(of_the_past)
    assert await graph.list_entities(project, 10) == []
    assert await graph.restore(project, records) == len(records) - len(past) - len(of_the_past)
    assert await exported(graph, project) == records
    everybody = names(await elsewhere.list_entities(project, 10))
    for at in (None, *(entity.valid_from for entity in entities)):
        found = await graph.relations_of(project, everybody, at=at)
        assert found == await elsewhere.relations_of(project, everybody, at=at)


async def test_what_is_there_already_stays(graph: Graph, project: str) -> None:
    """Also if it has gone on since the archive was made: there is still one current version of it."""
    records = await lived_in(graph, project)
    later = await changed(graph, project, "Ann", "went on")
    await connected(graph, project, related("Ann", "Cid", strength=0.8), related("Ann", "gone", strength=0.8))
    await graph.delete_entities(project, ["Bob"])
    before = await coherent(graph, project)

    assert await graph.restore(project, records) == 0
    assert await coherent(graph, project) == before
    assert await graph.get_entities(project, ["Ann", "Bob"]) == [later]


async def test_a_relation_without_its_end_is_refused_and_nothing_written(
    graph: Graph, elsewhere: Graph, project: str
) -> None:
    records = await lived_in(elsewhere, project)
    [bob] = await elsewhere.get_entities(project, ["Bob"])
    cut = [record for record in records if record != EntityRecord(bob)]
    with pytest.raises(InvalidInput):
        await graph.restore(project, cut)
    assert await exported(graph, project) == []


async def test_a_name_that_is_taken_is_not_given_twice(graph: Graph, elsewhere: Graph, project: str) -> None:
    """An archive of another graph has an Ann of its own; ours stays."""
    [ann] = await created(graph, project, new("Ann", "is ours"))
    await created(elsewhere, project, new("Ann", "is theirs"), new("Bob"))
    with pytest.raises(InvalidInput, match="Ann"):
        await graph.restore(project, await exported(elsewhere, project))
    assert await exported(graph, project) == [EntityRecord(ann)]


async def test_an_archive_is_not_restored_beside_its_own_project(graph: Graph, project: str) -> None:
    """A uid is given once, so what would come of it is neither a copy nor a move."""
    other = f"{project}-other"
    records = await lived_in(graph, other)
    with pytest.raises(InvalidInput):
        await graph.restore(project, records)
    assert await exported(graph, project) == []
    assert await exported(graph, other) == records


async def test_many_records_come_back_in_one_call(graph: Graph, project: str) -> None:
    def entity(number: int) -> EntityRecord:
        times: dict[str, Any] = {"created_at": number, "updated_at": number, "valid_from": number}
        uid, name = f"{project}-{number:05}", f"thing {number:05}"
        return EntityRecord(
            Entity(uid=uid, name=name, entity_type="t", observations=("o",), version=1, **times)
        )

    records = [entity(number) for number in range(1, 2501)]
    assert await graph.restore(project, records) == 2500
    assert await exported(graph, project) == records
    assert (await graph.size(project)).entities == 2500
    assert len(await graph.list_entities(project, 10_000, at=1250)) == 1250
    assert len(await graph.list_entities(project, 10_000, at=FOREVER)) == 2500
