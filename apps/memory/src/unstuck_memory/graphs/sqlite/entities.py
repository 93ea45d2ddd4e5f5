"""Writes entities. What one call makes of an entity is one new version, however many of its items name it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

from msgspec import structs

from unstuck_memory.graphs.folded import folded
from unstuck_memory.graphs.sqlite import rows
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.values import Entity, EntityChange, NewEntity, Observations


class Draft:
    """An entity while a call changes it."""

    def __init__(self, project: str, name: str, kind: str, row: rows.Row | None = None) -> None:
        self.project = project
        self.name = name
        self.kind = kind
        self.row_id = row[0] if row else None
        self.before = rows.entity(row) if row else None
        self.observations = dict.fromkeys(self.before.observations if self.before else ())
        self.changed_by: str | None = None

    def add(self, contents: Iterable[str]) -> tuple[str, ...]:
        new = tuple(text for text in dict.fromkeys(contents) if text not in self.observations)
        self.observations.update(dict.fromkeys(new))
        return new

    def delete(self, contents: Iterable[str]) -> tuple[str, ...]:
        gone = tuple(text for text in dict.fromkeys(contents) if text in self.observations)
        for text in gone:
            del self.observations[text]
        return gone

    def save(self, tx: Transaction) -> Entity:
        """The current version, which is written if it is a new one."""
        observations = tuple(self.observations)
        if self.before is None:
            [row] = tx.rows(
                "entity_create", uid=str(uuid4()), project=self.project, name=self.name, folded=folded(self.name),
                type=self.kind, changed_by=self.changed_by, observations=rows.text(observations), now=tx.now,
            )  # fmt: skip
        elif observations == self.before.observations:
            return self.before
        else:
            [row] = tx.rows(
                "entity_change", id=self.row_id, observations=rows.text(observations), changed_by=self.changed_by, now=tx.now
            )  # fmt: skip
        after = rows.entity(row)
        if self.before is not None:
            write_row(tx, self.project, structs.replace(self.before, valid_to=after.valid_from))
            forget(tx, row[0], self.before)
        index(tx, self.project, row[0], after)
        return after


class _Item(NamedTuple):
    draft: Draft | None
    change: EntityChange


def create_entities(tx: Transaction, project: str, entities: Sequence[NewEntity]) -> list[EntityChange]:
    drafts = drafted(tx, project, [entity.name for entity in entities])
    new: dict[str, str] = {}  # names that this call creates, by what they are found by
    items = []
    for entity in entities:
        created, similar = entity.name not in drafts, None
        if created:
            fold = folded(entity.name)
            similar = tx.value("entity_similar", project=project, folded=fold) or new.get(fold)
            new.setdefault(fold, entity.name)
            drafts[entity.name] = Draft(project, entity.name, entity.entity_type)
        draft = drafts[entity.name]
        added = draft.add(entity.observations)
        if created or added:
            draft.changed_by = entity.changed_by
        change = EntityChange(created=created, changed=created or bool(added), added=added, similar=similar)
        items.append(_Item(draft, change))
    return _saved(tx, items)


def add_observations(tx: Transaction, project: str, additions: Sequence[Observations]) -> list[EntityChange]:
    drafts = drafted(tx, project, [item.entity_name for item in additions])
    items = []
    for item in additions:
        draft = drafts.get(item.entity_name)
        if draft is None:
            items.append(_unknown(project, item.entity_name))
            continue
        absent = [text for text in item.replaces if text not in draft.observations]
        if absent:
            problem = f"entity {item.entity_name!r} has no observation {absent[0][:100]!r} to replace: read the entity first"
            items.append(_Item(None, EntityChange(problem=problem)))
            continue
        # What stands in both was there and stays.
        deleted = draft.delete(text for text in item.replaces if text not in item.contents)
        added = draft.add(item.contents)
        items.append(_Item(draft, EntityChange(changed=bool(added or deleted), added=added, deleted=deleted)))
    return _saved(tx, items)


def delete_observations(
    tx: Transaction, project: str, deletions: Sequence[Observations]
) -> list[EntityChange]:
    drafts = drafted(tx, project, [item.entity_name for item in deletions])
    items = []
    for item in deletions:
        draft = drafts.get(item.entity_name)
        if draft is None:
            items.append(_unknown(project, item.entity_name))
            continue
        deleted = draft.delete(item.contents)
        items.append(_Item(draft, EntityChange(changed=bool(deleted), deleted=deleted)))
    return _saved(tx, items)


def delete_entities(tx: Transaction, project: str, names: Sequence[str]) -> list[bool]:
    drafts = drafted(tx, project, names)
    found = []
    for name in names:
        draft = drafts.pop(name, None)
        if draft is not None:
            archive(tx, draft)
        found.append(draft is not None)
    return found


def drafted(tx: Transaction, project: str, names: Iterable[str]) -> dict[str, Draft]:
    """The current ones of these names."""
    found = tx.rows("entities_named", project=project, names=rows.texts(set(names)))
    drafts = [Draft(project, row[2], row[3], row) for row in found]
    return {draft.name: draft for draft in drafts}


def archive(tx: Transaction, draft: Draft) -> None:
    """End the current version and its relations at one time."""
    assert draft.before is not None
    [(valid_to,)] = tx.rows("entity_archive", id=draft.row_id, now=tx.now)
    tx.change("entity_archive_relations", id=draft.row_id, valid_to=valid_to)
    tx.change("words_delete", id=draft.row_id)
    forget(tx, draft.row_id, draft.before)


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


def _saved(tx: Transaction, items: Sequence[_Item]) -> list[EntityChange]:
    saved: dict[str, Entity] = {}
    for item in items:
        if item.draft is not None and item.draft.name not in saved:
            saved[item.draft.name] = item.draft.save(tx)
    return [
        structs.replace(item.change, entity=saved[item.draft.name]) if item.draft else item.change
        for item in items
    ]


def _unknown(project: str, name: str) -> _Item:
    return _Item(
        None, EntityChange(problem=f"there is no entity {name!r} in project {project!r}: create it first")
    )
