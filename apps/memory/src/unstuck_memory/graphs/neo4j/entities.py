"""Writes entities. The current ones that a call names are locked in order of their names, then read, then changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from unstuck_memory.graphs import drafts
from unstuck_memory.graphs.drafts import Draft
from unstuck_memory.graphs.folded import folded
from unstuck_memory.graphs.neo4j import rows
from unstuck_memory.graphs.neo4j.client import Transaction
from unstuck_memory.values import Entity, EntityChange, NewEntity, Observations, Relation


class Found(NamedTuple):
    """Current entities that are locked, and which of them have vectors."""

    entities: dict[str, Entity]
    embedded: set[str]
    now: int


async def create_entities(tx: Transaction, project: str, entities: Sequence[NewEntity]) -> list[EntityChange]:
    names = sorted({entity.name for entity in entities})
    takers = [{"name": name, "uid": str(uuid4())} for name in names]
    taken: dict[str, str] = dict(await tx.rows("take_names", project=project, takers=takers))
    found = await _find(tx, project, [name for name in names if name not in taken])
    wanted = [{"name": name, "folded": folded(name)} for name in taken]
    answers = await tx.rows("find_taken", project=project, names=wanted)
    before = dict(zip(taken, answers, strict=True))
    now = max([found.now, *(at for _, _, at in answers)])
    drafted = drafts.drafted(found.entities.values())
    items = drafts.creating(drafted, entities, {name: similar for name, (_, similar, _) in before.items()})
    current = {}
    for name, draft in drafted.items():
        if draft.before is None:
            current[name] = _first(draft, taken[name], max(now, before[name][0] or 0))
        else:
            current[name] = _next(draft, now)
    await _write(tx, project, drafted.values(), current, found.embedded)
    return drafts.answers(items, current)


async def add_observations(
    tx: Transaction, project: str, additions: Sequence[Observations]
) -> list[EntityChange]:
    found = await lock(tx, project, (item.entity_name for item in additions))
    drafted = drafts.drafted(found.entities.values())
    items = drafts.adding(project, drafted, additions)
    return drafts.answers(items, await save(tx, project, drafted.values(), found))


async def delete_observations(
    tx: Transaction, project: str, deletions: Sequence[Observations]
) -> list[EntityChange]:
    found = await lock(tx, project, (item.entity_name for item in deletions))
    drafted = drafts.drafted(found.entities.values())
    items = drafts.deleting(project, drafted, deletions)
    return drafts.answers(items, await save(tx, project, drafted.values(), found))


async def delete_entities(tx: Transaction, project: str, names: Sequence[str]) -> list[bool]:
    found = await lock(tx, project, names)
    await archive(tx, list(found.entities.values()), found)
    there = set(found.entities)
    answers = []
    for name in names:
        answers.append(name in there)
        there.discard(name)
    return answers


async def lock(tx: Transaction, project: str, names: Iterable[str]) -> Found:
    """Hold the current entities of these names until the end of the transaction, and read them then."""
    in_order = sorted(set(names))
    await tx.rows("lock_entities", project=project, names=in_order)
    return await _find(tx, project, in_order)


async def save(tx: Transaction, project: str, drafted: Iterable[Draft], found: Found) -> dict[str, Entity]:
    """The current versions, by name; those that are new are written."""
    drafted = list(drafted)
    current = {draft.name: _next(draft, found.now) for draft in drafted}
    await _write(tx, project, drafted, current, found.embedded)
    return current


async def archive(tx: Transaction, entities: Sequence[Entity], found: Found) -> None:
    """End the current versions of entities that are locked, and their relations, at one time."""
    uids = [entity.uid for entity in entities]
    relations = await relations_of(tx, uids)
    begun = [*(one.valid_from for one in entities), *(one.valid_from for one in relations)]
    end = max([found.now, *(since + 1 for since in begun)])
    await tx.rows("archive_relations", ends=[{"uid": one.uid, "valid_to": end} for one in relations])
    await tx.rows("archive_entities", ends=[{"uid": uid, "valid_to": end} for uid in uids])
    await _hide(tx, [entity.uid for entity in entities if entity.name in found.embedded])


async def relations_of(tx: Transaction, uids: Sequence[str]) -> list[Relation]:
    return [rows.relation(found) for (found,) in await tx.rows("find_relations_of", uids=uids)]


async def _find(tx: Transaction, project: str, names: Sequence[str]) -> Found:
    found = await tx.rows("find_entities", project=project, names=names)
    return Found(
        entities={one["name"]: rows.entity(one) for one, _, _ in found},
        embedded={one["name"] for one, has_vectors, _ in found if has_vectors},
        now=max((now for _, _, now in found), default=0),
    )


def _first(draft: Draft, uid: str, now: int) -> Entity:
    return Entity(
        uid=uid,
        name=draft.name,
        entity_type=draft.entity_type,
        observations=tuple(draft.observations),
        version=1,
        created_at=now,
        updated_at=now,
        valid_from=now,
        changed_by=draft.changed_by,
    )


def _next(draft: Draft, now: int) -> Entity:
    """The next version, if it is another one."""
    before = draft.before
    assert before is not None
    if not draft.changed:
        return before
    now = max(now, before.valid_from + 1)
    return replace(
        before,
        observations=tuple(draft.observations),
        version=before.version + 1,
        updated_at=now,
        valid_from=now,
        changed_by=draft.changed_by,
    )


async def _write(
    tx: Transaction,
    project: str,
    drafted: Iterable[Draft],
    current: dict[str, Entity],
    embedded: set[str],
) -> None:
    new = [current[draft.name] for draft in drafted if draft.changed]
    if new:
        states = [rows.current(project, entity, tx.models.values()) for entity in new]
        await tx.rows("write_entities", states=states)
        await _hide(tx, [entity.uid for entity in new if entity.name in embedded])


async def _hide(tx: Transaction, uids: Sequence[str]) -> None:
    """Have the vectors of versions that are not current any more not found."""
    if uids:
        found = await tx.rows("find_chunks", uids=uids)
        await hide(tx, {(model, hash_) for model, hash_ in found})


async def hide(tx: Transaction, vectors: Iterable[tuple[int, str]]) -> None:
    """Have those vectors not found that no current version has."""
    in_order = [{"model": model, "hash": hash_} for model, hash_ in sorted(vectors)]
    if in_order:
        await tx.rows("hide_vectors", vectors=in_order)
