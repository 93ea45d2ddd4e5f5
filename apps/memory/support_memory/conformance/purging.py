"""Archived versions are deleted for good when they are old enough."""

import msgspec
from unstuck_memory.archive_records import ArchiveRecord, EntityRecord
from unstuck_memory.graph import Graph

from support_memory.conformance.given import (
    HOUR,
    MODEL,
    changed,
    coherent,
    connected,
    created,
    digest,
    embed,
    exported,
    key,
    new,
    older,
    related,
    vector,
)


async def _lived_in(graph: Graph, project: str, ago: int) -> int:
    """What was there, and what became of it, all of it so long ago. Restored, because no clock runs backwards."""
    scratch = f"{project}-scratch"
    await created(graph, scratch, new("Ann", "a"), "Bob", "Cid")
    await connected(graph, scratch, related("Ann", "Bob", strength=0.1), related("Ann", "Cid"))
    await changed(graph, scratch, "Ann", "b")
    await connected(graph, scratch, related("Ann", "Bob", strength=0.2))
    await graph.delete_entities(scratch, ["Cid"])
    renamed = [_elsewhere(record) for record in await exported(graph, scratch)]
    return await graph.restore(project, [older(record, ago) for record in renamed])


def _elsewhere(record: ArchiveRecord) -> ArchiveRecord:
    """The same of other entities: a uid is given once."""
    if isinstance(record, EntityRecord):
        return EntityRecord(msgspec.structs.replace(record.entity, uid=_other(record.entity.uid)))
    return msgspec.structs.replace(
        record, uid=_other(record.uid), from_uid=_other(record.from_uid), to_uid=_other(record.to_uid)
    )


def _other(uid: str) -> str:
    return digest(uid).hex()[:8] + uid[8:]


async def test_only_what_was_archived_long_enough_ago_is_purged(graph: Graph, project: str) -> None:
    assert await _lived_in(graph, project, 10 * HOUR) == 7
    assert (await graph.size(project)).archived == 4

    kept = await graph.purge(project, 11 * HOUR)
    assert (kept.entities, kept.relations) == (0, 0)
    assert (await graph.size(project)).archived == 4

    gone = await graph.purge(project, 9 * HOUR)
    assert (gone.entities, gone.relations) == (2, 2)
    size = await graph.size(project)
    assert (size.entities, size.relations, size.archived) == (2, 1, 0)
    again = await graph.purge(project, 0)
    assert (again.entities, again.relations) == (0, 0)


async def test_what_is_current_stays_however_old_it_is(graph: Graph, project: str) -> None:
    await _lived_in(graph, project, 1000 * HOUR)
    before = await graph.list_entities(project, 10)
    relations = await graph.relations_of(project, ["Ann"])
    await graph.purge(project, HOUR)

    assert await graph.list_entities(project, 10) == before
    assert await graph.relations_of(project, ["Ann"]) == relations
    assert await graph.entity_history(project, "Ann") == [before[0]]
    assert await graph.entity_history(project, "Cid") == []
    assert await graph.relation_history(project, key("Ann", "Cid")) == []
    await coherent(graph, project)
    assert (await changed(graph, project, "Ann", "c")).version == before[0].version + 1
    [again] = await created(graph, project, new("Cid"))
    assert again.version == 1


async def test_what_changed_since_is_not_old(graph: Graph, project: str) -> None:
    """The age is that of the end, not of the beginning."""
    await _lived_in(graph, project, 10 * HOUR)
    await graph.purge(project, HOUR)
    await changed(graph, project, "Ann", "c")
    purged = await graph.purge(project, HOUR)
    assert (purged.entities, purged.relations) == (0, 0)
    assert len(await graph.entity_history(project, "Ann")) == 2


async def test_a_purge_takes_no_vector_of_what_is_current(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    await _lived_in(graph, project, 10 * HOUR)
    [ann, bob] = await graph.list_entities(project, 10)
    await embed(graph, ann, vector(), vector(0.5))
    await embed(graph, bob, vector(0.2))
    await graph.purge(project, HOUR)

    assert [hit.uid for hit in await graph.nearest(project, MODEL, vector(), 5)] == [ann.uid, bob.uid]
    found = await graph.embedding_of(ann.uid, MODEL)
    assert found is not None
    assert len(found.chunks) == 2
    assert (await graph.coverage(project, MODEL)).embedded == 2
    assert [hit.uid for hit in await graph.keyword(project, ["Ann"], 5)] == [ann.uid]
