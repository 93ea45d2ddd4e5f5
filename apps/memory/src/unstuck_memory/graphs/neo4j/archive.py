"""Everything of a project, history too, as records; and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from unstuck_memory.archive_records import ArchiveRecord, EntityRecord, RelationRecord
from unstuck_memory.errors import InvalidInput
from unstuck_memory.graphs.neo4j import rows
from unstuck_memory.graphs.neo4j.client import Client, Transaction
from unstuck_memory.values import Entity

AT_ONCE = 200  # entities that are locked, read and in memory at a time
Key = tuple[str, str, str]


async def export(client: Client, project: str) -> AsyncIterator[ArchiveRecord]:
    """Each entity is of one moment. Who gets a name that was exported already, and relations of his, are of a later one."""
    exported: set[str] = set()
    names: set[str] = set()
    async for uid, versions in _pages(client, "export_entities", project):
        entities = [rows.entity(found) for found in versions]
        current = {entity.name for entity in entities if entity.valid_to is None}
        if not entities or current & names:
            continue
        exported.add(uid)
        names |= current
        for entity in entities:
            yield EntityRecord(entity)
    async for _, versions in _pages(client, "export_relations", project):
        for found in versions:
            if {found["from_uid"], found["to_uid"]} <= exported:
                fields = RelationRecord.__struct_fields__
                yield RelationRecord(**{name: found.get(name) for name in fields})


async def restore(tx: Transaction, project: str, records: Sequence[ArchiveRecord]) -> int:
    entities = [record.entity for record in records if isinstance(record, EntityRecord)]
    relations = [record for record in records if isinstance(record, RelationRecord)]
    ids = {entity.uid: entity.name for entity in entities}
    ends = {uid for relation in relations for uid in (relation.from_uid, relation.to_uid)}
    in_order = sorted(ids, key=lambda uid: (ids[uid], uid))
    await tx.rows("restore_ids", project=project, ids=[{"uid": uid, "name": ids[uid]} for uid in in_order])
    await tx.rows("restore_ends", uids=sorted(ends - ids.keys()))
    there = {
        uid: _Restored(name, home, current, set(versions))
        for uid, name, home, current, versions in await tx.rows(
            "find_restored", uids=sorted(ends | ids.keys())
        )
    }
    count = await _restore_entities(tx, project, entities, there)
    return count + await _restore_relations(tx, project, relations, there)


class _Restored:
    """What is there of an entity."""

    def __init__(self, name: str, project: str, current: bool, versions: set[int]) -> None:
        self.name = name
        self.project = project
        self.current = current
        self.versions = versions


async def _pages(client: Client, statement: str, project: str) -> AsyncIterator[tuple[str, list[Any]]]:
    after = ""
    while True:
        page = await client.write(partial(_page, statement=statement, project=project, after=after))
        for uid, found in page:
            yield uid, found
        if len(page) < AT_ONCE:
            return
        after = page[-1][0]


async def _page(tx: Transaction, *, statement: str, project: str, after: str) -> list[list[Any]]:
    return await tx.rows(statement, project=project, after=after, limit=AT_ONCE)


async def _restore_entities(
    tx: Transaction, project: str, entities: Sequence[Entity], there: dict[str, _Restored]
) -> int:
    """Write the versions that are new. What is newer than the current version here is not: that one stays."""
    names = [entity.name for entity in entities if entity.valid_to is None]
    taken = {name for (name,) in await tx.rows("find_names_taken", project=project, names=names)}
    archived, current = [], []
    for entity in sorted(entities, key=lambda entity: -entity.version):
        known = there[entity.uid]
        if known.project != project:
            raise InvalidInput(
                f"entity {entity.name!r} (uid {entity.uid}) of the archive is in project {known.project!r} of this graph: restore it there"
            )
        newer = bool(known.versions) and entity.version > max(known.versions)
        if entity.version in known.versions or (newer and known.current):
            continue
        if entity.valid_to is None and known.versions and not newer:
            continue
        if entity.valid_to is None:
            if entity.name in taken:
                raise InvalidInput(
                    f"another entity of project {project!r} has the name {entity.name!r}: merge it into another one or delete it first"
                )
            taken.add(entity.name)
            known.current = True
            current.append(rows.current(project, entity, tx.models.values()))
        else:
            archived.append(rows.version(project, entity))
        known.versions.add(entity.version)
    await tx.rows("restore_versions", states=archived)
    await tx.rows("restore_current", states=current)
    return len(archived) + len(current)


async def _restore_relations(
    tx: Transaction, project: str, relations: Sequence[RelationRecord], there: dict[str, _Restored]
) -> int:
    asked = [
        {"uid": one.uid, "from_uid": one.from_uid, "to_uid": one.to_uid, "relation_type": one.relation_type}
        for one in relations
    ]
    versions: dict[str, set[int]] = {}
    current_uids: set[str] = set()
    current_keys: set[Key] = set()
    for uid, version, key, is_current in await tx.rows("find_restored_relations", relations=asked):
        versions.setdefault(uid, set()).add(version)
        if is_current:
            current_uids.add(uid)
            current_keys.add(tuple(key))
    archived, current = [], []
    for one in relations:
        ends = [_end(project, one, uid, there) for uid in (one.from_uid, one.to_uid)]
        key = (one.from_uid, one.to_uid, one.relation_type)
        known = versions.setdefault(one.uid, set())
        newest = max(known, default=0)
        has_current = one.uid in current_uids or key in current_keys
        if one.version in known:
            continue
        state = {name: getattr(one, name) for name in RelationRecord.__struct_fields__} | {"project": project}
        if one.valid_to is None:
            if has_current or not all(end.current for end in ends) or newest > one.version:
                continue
            current_uids.add(one.uid)
            current_keys.add(key)
            current.append(state)
        else:
            if has_current and known and one.version > newest:
                continue
            archived.append(state)
        known.add(one.version)
    await tx.rows("restore_relations", states=archived)
    await tx.rows("create_relations", states=current)
    return len(archived) + len(current)


def _end(project: str, relation: RelationRecord, uid: str, there: dict[str, _Restored]) -> _Restored:
    found = there.get(uid)
    if found is None or found.project != project:
        raise InvalidInput(
            f"relation {relation.uid} of the archive leads to entity {uid}, which is neither in the archive nor in project "
            f"{project!r}: restore the whole archive"
        )
    return found
