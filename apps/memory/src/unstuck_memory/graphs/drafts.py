"""What the items of one call make of entities, whatever graph they are in: one new version each, however many items name it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from unstuck_memory.graphs.folded import folded
from unstuck_memory.values import Entity, EntityChange, NewEntity, Observations


class Draft:
    """An entity while a call changes it. ``before`` is its current version, None for a new one."""

    def __init__(self, name: str, entity_type: str, before: Entity | None = None) -> None:
        self.name = name
        self.entity_type = entity_type
        self.before = before
        self.observations = dict.fromkeys(before.observations if before else ())
        self.changed_by: str | None = None

    @property
    def changed(self) -> bool:
        return self.before is None or tuple(self.observations) != self.before.observations

    def add(self, contents: Iterable[str]) -> tuple[str, ...]:
        new = tuple(text for text in dict.fromkeys(contents) if text not in self.observations)
        self.observations.update(dict.fromkeys(new))
        return new

    def delete(self, contents: Iterable[str]) -> tuple[str, ...]:
        gone = tuple(text for text in dict.fromkeys(contents) if text in self.observations)
        for text in gone:
            del self.observations[text]
        return gone


Drafts = dict[str, Draft]
"""By name."""


class Item(NamedTuple):
    """What becomes of one item of a call; its ``change`` has no entity before that is written."""

    draft: Draft | None
    change: EntityChange


def drafted(entities: Iterable[Entity]) -> Drafts:
    return {entity.name: Draft(entity.name, entity.entity_type, entity) for entity in entities}


def creating(
    drafts: Drafts, entities: Sequence[NewEntity], similar_names: Mapping[str, str | None]
) -> list[Item]:
    """Create what has no draft yet. ``similar_names`` are those of existing entities, by the names of new ones."""
    new: dict[str, str] = {}  # names that this call creates, by what they are found by
    items = []
    for entity in entities:
        created, similar = entity.name not in drafts, None
        if created:
            fold = folded(entity.name)
            similar = similar_names.get(entity.name) or new.get(fold)
            new.setdefault(fold, entity.name)
            drafts[entity.name] = Draft(entity.name, entity.entity_type)
        draft = drafts[entity.name]
        added = draft.add(entity.observations)
        if created or added:
            draft.changed_by = entity.changed_by
        items.append(
            Item(
                draft,
                EntityChange(created=created, changed=created or bool(added), added=added, similar=similar),
            )
        )
    return items


def adding(project: str, drafts: Drafts, additions: Sequence[Observations]) -> list[Item]:
    items = []
    for item in additions:
        draft = drafts.get(item.entity_name)
        if draft is None:
            items.append(_unknown(project, item.entity_name))
            continue
        absent = [text for text in item.replaces if text not in draft.observations]
        if absent:
            problem = f"entity {item.entity_name!r} has no observation {absent[0][:100]!r} to replace: read the entity first"
            items.append(Item(None, EntityChange(problem=problem)))
            continue
        # What stands in both was there and stays.
        deleted = draft.delete(text for text in item.replaces if text not in item.contents)
        added = draft.add(item.contents)
        items.append(Item(draft, EntityChange(changed=bool(added or deleted), added=added, deleted=deleted)))
    return items


def deleting(project: str, drafts: Drafts, deletions: Sequence[Observations]) -> list[Item]:
    items = []
    for item in deletions:
        draft = drafts.get(item.entity_name)
        if draft is None:
            items.append(_unknown(project, item.entity_name))
            continue
        deleted = draft.delete(item.contents)
        items.append(Item(draft, EntityChange(changed=bool(deleted), deleted=deleted)))
    return items


def answers(items: Sequence[Item], current: Mapping[str, Entity]) -> list[EntityChange]:
    """What became of each item, with the versions that are current now, by name."""
    return [
        replace(item.change, entity=current[item.draft.name]) if item.draft else item.change for item in items
    ]


def _unknown(project: str, name: str) -> Item:
    return Item(
        None, EntityChange(problem=f"there is no entity {name!r} in project {project!r}: create it first")
    )
