"""The values of a knowledge graph: entities, relations, and what became of each item of a call.

All times are milliseconds of the graph's own clock. JSON has the names of the memento family: ``entityType``, ``validTo``.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Value(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """A value with names as JSON has them."""


class NewEntity(Value, frozen=True, kw_only=True):
    """An entity to create, or observations for the one of that name."""

    name: str
    entity_type: str
    observations: tuple[str, ...] = ()
    changed_by: str | None = None


class Entity(Value, frozen=True, kw_only=True):
    """One version of an entity. ``uid`` is the same for all versions; ``valid_to`` is None for the current one."""

    uid: str
    name: str
    entity_type: str
    observations: tuple[str, ...]
    version: int
    created_at: int
    updated_at: int
    valid_from: int
    valid_to: int | None = None
    changed_by: str | None = None


class Version(Value, frozen=True, kw_only=True):
    """What an embedding belongs to: one version of one entity."""

    uid: str
    version: int


class Observations(Value, frozen=True, kw_only=True):
    """Observations to add to an entity, or to delete from it. ``replaces`` are deleted in the same version."""

    entity_name: str
    contents: tuple[str, ...]
    replaces: tuple[str, ...] = ()


class EntityChange(Value, frozen=True, kw_only=True):
    """What became of one item. ``entity`` is the current version after the call, None where ``problem`` says why.

    ``similar`` is the name of an existing entity that differs from a new one only in case or spaces.
    """

    entity: Entity | None = None
    created: bool = False
    changed: bool = False
    added: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    similar: str | None = None
    problem: str | None = None


class RelationKey(Value, frozen=True, kw_only=True):
    """Which relation: no two current ones have the same ends and type."""

    from_: str = field(name="from")
    to: str
    relation_type: str


class NewRelation(Value, frozen=True, kw_only=True):
    """A relation to create or to update. What is None is not stated: it stays as it is, or missing."""

    from_: str = field(name="from")
    to: str
    relation_type: str
    strength: float | None = None
    confidence: float | None = None
    metadata: dict[str, Any] | None = None
    changed_by: str | None = None

    @property
    def key(self) -> RelationKey:
        return RelationKey(from_=self.from_, to=self.to, relation_type=self.relation_type)


class Relation(Value, frozen=True, kw_only=True):
    """One version of a relation, with the names that its ends have."""

    uid: str
    from_: str = field(name="from")
    to: str
    relation_type: str
    strength: float | None = None
    confidence: float | None = None
    metadata: dict[str, Any] | None = None
    version: int
    created_at: int
    updated_at: int
    valid_from: int
    valid_to: int | None = None
    changed_by: str | None = None

    @property
    def key(self) -> RelationKey:
        return RelationKey(from_=self.from_, to=self.to, relation_type=self.relation_type)


class RelationChange(Value, frozen=True, kw_only=True):
    """What became of one relation of a call; ``problem`` says why it was not written, for example an unknown end."""

    relation: Relation | None = None
    created: bool = False
    changed: bool = False
    problem: str | None = None


class Merge(Value, frozen=True, kw_only=True):
    """What a merge of two entities moved, or would move."""

    source: str
    into: str
    observations: int
    relations: int
    dry_run: bool


class Purge(Value, frozen=True, kw_only=True):
    """How many archived versions were deleted for good."""

    entities: int
    relations: int


class Size(Value, frozen=True, kw_only=True):
    """How much a project has: current entities and relations, and archived versions of both."""

    entities: int
    relations: int
    archived: int


class Coverage(Value, frozen=True, kw_only=True):
    """How many current entities there are, and how many have all their vectors of one model."""

    entities: int
    embedded: int
