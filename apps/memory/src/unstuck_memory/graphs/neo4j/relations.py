"""Writes relations. Their ends are locked, so that nobody else states the same relation or archives an end meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from unstuck_memory.errors import NotFound
from unstuck_memory.graphs.neo4j import entities, rows
from unstuck_memory.graphs.neo4j.client import Transaction
from unstuck_memory.graphs.neo4j.entities import Found
from unstuck_memory.values import NewRelation, Relation, RelationChange, RelationKey


async def create_relations(
    tx: Transaction, project: str, relations: Sequence[NewRelation]
) -> list[RelationChange]:
    found = await entities.lock(tx, project, _ends(relation.key for relation in relations))
    asked: dict[RelationKey, NewRelation] = {}
    for relation in relations:
        if {relation.from_, relation.to} <= found.entities.keys():
            asked[relation.key] = together(relation, asked.get(relation.key))
    written = await _state(tx, project, found, list(asked.values()))
    answers, seen = [], set()
    for relation in relations:
        key = relation.key
        if key not in written:
            unknown = next(name for name in (key.from_, key.to) if name not in found.entities)
            problem = f"there is no entity {unknown!r} in project {project!r}: create it first"
            answers.append(RelationChange(problem=problem))
        else:
            answers.append(replace(written[key], created=written[key].created and key not in seen))
            seen.add(key)
    return answers


async def update_relation(tx: Transaction, project: str, relation: NewRelation) -> Relation:
    found = await entities.lock(tx, project, _ends([relation.key]))
    there, _ = await current(tx, found, [relation.key])
    if not there:
        raise NotFound(
            f"there is no relation {relation.relation_type!r} from {relation.from_!r} to {relation.to!r} in project "
            f"{project!r}: create it first"
        )
    updated = (await _state(tx, project, found, [relation]))[relation.key].relation
    assert updated is not None
    return updated


async def delete_relations(tx: Transaction, project: str, keys: Sequence[RelationKey]) -> list[bool]:
    found = await entities.lock(tx, project, _ends(keys))
    there, _ = await current(tx, found, keys)
    await archive(tx, list(there.values()), found.now)
    return [there.pop(key, None) is not None for key in keys]


async def archive(tx: Transaction, relations: Iterable[Relation], now: int) -> None:
    ends = [{"uid": one.uid, "valid_to": max(now, one.valid_from + 1)} for one in relations]
    await tx.rows("archive_relations", ends=ends)


async def write(
    tx: Transaction, project: str, found: Found, states: Iterable[tuple[Relation | None, Relation]]
) -> None:
    """Write versions, each with the one before it; one without is a new relation."""
    old: list[rows.Properties] = []
    new: list[rows.Properties] = []
    for before, after in states:
        properties = _properties(project, found, after)
        (new if before is None else old).append(properties)
    await tx.rows("write_relations", states=old)
    await tx.rows("create_relations", states=new)


def begin(relation: NewRelation, found: Found, free: int, *, like: Relation | None = None) -> Relation:
    """A first version; one that moved here is as old as the one that it is ``like``. It begins no earlier than its ends."""
    ends = [found.entities[name].created_at for name in (relation.from_, relation.to)]
    now = max(found.now, free, *ends)
    return Relation(
        uid=str(uuid4()), from_=relation.from_, to=relation.to, relation_type=relation.relation_type, strength=relation.strength,
        confidence=relation.confidence, metadata=relation.metadata, version=1, created_at=like.created_at if like else now,
        updated_at=like.updated_at if like else now, valid_from=now, changed_by=relation.changed_by,
    )  # fmt: skip


def go_on(before: Relation, after: NewRelation, now: int, *, updated_at: int | None = None) -> Relation:
    """The next version; it is stated now unless ``updated_at`` is given."""
    now = max(now, before.valid_from + 1)
    return replace(
        before, strength=after.strength, confidence=after.confidence, metadata=after.metadata, changed_by=after.changed_by,
        version=before.version + 1, valid_from=now, updated_at=now if updated_at is None else updated_at,
    )  # fmt: skip


def stated(relation: Relation) -> NewRelation:
    """What a relation states, as if it was new."""
    return NewRelation(
        from_=relation.from_, to=relation.to, relation_type=relation.relation_type, strength=relation.strength,
        confidence=relation.confidence, metadata=relation.metadata, changed_by=relation.changed_by,
    )  # fmt: skip


def together(relation: NewRelation, lacking: NewRelation | None) -> NewRelation:
    """A relation, and what it does not state from another one."""
    if lacking is None:
        return relation
    return replace(
        relation,
        strength=lacking.strength if relation.strength is None else relation.strength,
        confidence=lacking.confidence if relation.confidence is None else relation.confidence,
        metadata=lacking.metadata if relation.metadata is None else relation.metadata,
    )


def same(one: NewRelation, other: NewRelation) -> bool:
    return (one.strength, one.confidence, one.metadata) == (other.strength, other.confidence, other.metadata)


async def _state(
    tx: Transaction, project: str, found: Found, relations: Sequence[NewRelation]
) -> dict[RelationKey, RelationChange]:
    there, free = await current(tx, found, [relation.key for relation in relations])
    written: dict[RelationKey, RelationChange] = {}
    versions: list[tuple[Relation | None, Relation]] = []
    again: list[dict[str, Any]] = []
    for relation in relations:
        before = there.get(relation.key)
        if before is None:
            after = begin(relation, found, free[relation.key])
            versions.append((None, after))
        elif same(merged := together(relation, stated(before)), stated(before)):
            after = replace(before, updated_at=max(found.now, before.updated_at))
            again.append({"uid": after.uid, "updated_at": after.updated_at})
        else:
            after = go_on(before, merged, found.now)
            versions.append((before, after))
        changed = before is None or after.version != before.version
        written[relation.key] = RelationChange(relation=after, created=before is None, changed=changed)
    await write(tx, project, found, versions)
    await tx.rows("restate_relations", states=again)
    return written


async def current(
    tx: Transaction, found: Found, keys: Iterable[RelationKey]
) -> tuple[dict[RelationKey, Relation], dict[RelationKey, int]]:
    """The current relations among those of these keys whose ends are locked; and when earlier ones of the other keys ended."""
    asked = [key for key in dict.fromkeys(keys) if {key.from_, key.to} <= found.entities.keys()]
    uids = [
        {
            "from_uid": _uid(found, key.from_),
            "to_uid": _uid(found, key.to),
            "relation_type": key.relation_type,
        }
        for key in asked
    ]
    answers = await tx.rows("find_relations", keys=uids)
    there = {key: rows.relation(one) for key, (one, _) in zip(asked, answers, strict=True) if one}
    return there, {key: free or 0 for key, (_, free) in zip(asked, answers, strict=True)}


def _uid(found: Found, name: str) -> str:
    return found.entities[name].uid


def _properties(project: str, found: Found, of: Relation) -> rows.Properties:
    return rows.facts(stated(of)) | {
        "uid": of.uid, "project": project, "from_uid": _uid(found, of.from_), "to_uid": _uid(found, of.to),
        "relation_type": of.relation_type, "version": of.version, "created_at": of.created_at, "updated_at": of.updated_at,
        "valid_from": of.valid_from,
    }  # fmt: skip


def _ends(keys: Iterable[RelationKey]) -> list[str]:
    return [name for key in keys for name in (key.from_, key.to)]
