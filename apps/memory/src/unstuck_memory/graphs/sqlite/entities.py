"""Writes entities. What one call makes of an entity is one new version, however many of its items name it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

from msgspec import structs

from unstuck_memory.graphs import drafts
from unstuck_memory.graphs.drafts import Draft, Drafts, Item
from unstuck_memory.graphs.folded import folded
from unstuck_memory.graphs.sqlite import rows
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.values import Entity, EntityChange, NewEntity, Observations


class Found(NamedTuple):
    """The drafts of current entities, and the ids of their rows, both by name."""

    drafts: Drafts
    ids: dict[str, int]


def create_entities(tx: Transaction, project: str, entities: Sequence[NewEntity]) -> list[EntityChange]:
    found = find(tx, project, [entity.name for entity in entities])
    similar = {
        name: tx.value("entity_similar", project=project, folded=folded(name))
        for name in dict.fromkeys(entity.name for entity in entities)
        if name not in found.drafts
    }
    return _saved(tx, project, found, drafts.creating(found.drafts, entities, similar))


def add_observations(tx: Transaction, project: str, additions: Sequence[Observations]) -> list[EntityChange]:
    found = find(tx, project, [item.entity_name for item in additions])
    return _saved(tx, project, found, drafts.adding(project, found.drafts, additions))


def delete_observations(
    tx: Transaction, project: str, deletions: Sequence[Observations]
) -> list[EntityChange]:
    found = find(tx, project, [item.entity_name for item in deletions])
    return _saved(tx, project, found, drafts.deleting(project, found.drafts, deletions))


def delete_entities(tx: Transaction, project: str, names: Sequence[str]) -> list[bool]:
    found = find(tx, project, names)
    answers = []
    for name in names:
        draft = found.drafts.pop(name, None)
        if draft is not None:
            archive(tx, draft, found.ids[name])
        answers.append(draft is not None)
    return answers


def find(tx: Transaction, project: str, names: Iterable[str]) -> Found:
    """The current ones of these names."""
    found = tx.rows("entities_named", project=project, names=rows.texts(set(names)))
    return Found(drafts.drafted(map(rows.entity, found)), {row[2]: row[0] for row in found})


def save(tx: Transaction, project: str, draft: Draft, row_id: int | None) -> Entity:
    """The current version, which is written if it is a new one. An entity that has none yet has no row."""
    before, observations = draft.before, rows.text(tuple(draft.observations))
    if before is not None and not draft.changed:
        return before
    if before is None:
        [row] = tx.rows(
            "entity_create", uid=str(uuid4()), project=project, name=draft.name, folded=folded(draft.name),
            type=draft.entity_type, changed_by=draft.changed_by, observations=observations, now=tx.now,
        )  # fmt: skip
    else:
        [row] = tx.rows(
            "entity_change", id=row_id, observations=observations, changed_by=draft.changed_by, now=tx.now
        )
    after = rows.entity(row)
    if before is not None:
        write_row(tx, project, structs.replace(before, valid_to=after.valid_from))
        forget(tx, row[0], before)
    index(tx, project, row[0], after)
    return after


def archive(tx: Transaction, draft: Draft, row_id: int) -> None:
    """End the current version and its relations at one time."""
    assert draft.before is not None
    [(valid_to,)] = tx.rows("entity_archive", id=row_id, now=tx.now)
    tx.change("entity_archive_relations", id=row_id, valid_to=valid_to)
    tx.change("words_delete", id=row_id)
    forget(tx, row_id, draft.before)


def write_row(tx: Transaction, project: str, entity: Entity) -> int:
    """Write a version to a row of its own; returns the row's id."""
    values = structs.asdict(entity) | {"observations": rows.text(entity.observations)}
    return int(tx.value("entity_write", project=project, folded=folded(entity.name), **values))


def index(tx: Transaction, project: str, row_id: int, entity: Entity) -> None:
    """Have a new current version found by its words, and as one that lacks its embeddings."""
    tx.change(
        "words_write", id=row_id, name=entity.name, type=entity.entity_type, observations="\n".join(entity.observations)
    )  # fmt: skip
    tx.change("missing_add", since=entity.valid_from, uid=entity.uid, project=project, entity=row_id)


def forget(tx: Transaction, row_id: int | None, before: Entity) -> None:
    """What was embedded of a version is not found any more, and it lacks nothing."""
    tx.change("missing_delete", since=before.valid_from, uid=before.uid)
    if tx.value("embedding_found", entity=row_id):
        tx.change("embedding_end", entity=row_id, change=tx.value("change_next"))


def _saved(tx: Transaction, project: str, found: Found, items: Sequence[Item]) -> list[EntityChange]:
    named = {item.draft.name: item.draft for item in items if item.draft is not None}
    current = {name: save(tx, project, draft, found.ids.get(name)) for name, draft in named.items()}
    return drafts.answers(items, current)
