"""Properties of nodes and relationships as the values that callers see, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from unstuck_memory.graphs.folded import folded
from unstuck_memory.graphs.neo4j.client import KnownModel
from unstuck_memory.values import Entity, NewRelation, Relation

Properties = dict[str, Any]


def entity(found: Properties) -> Entity:
    return Entity(
        uid=found["uid"],
        name=found["name"],
        entity_type=found["entity_type"],
        observations=tuple(found["observations"]),
        version=found["version"],
        created_at=found["created_at"],
        updated_at=found["updated_at"],
        valid_from=found["valid_from"],
        valid_to=found.get("valid_to"),
        changed_by=found.get("changed_by"),
    )


def version(project: str, of: Entity) -> Properties:
    """The properties of any version. Those that are None are not written."""
    return {
        "uid": of.uid,
        "project": project,
        "name": of.name,
        "entity_type": of.entity_type,
        "observations": list(of.observations),
        "version": of.version,
        "created_at": of.created_at,
        "updated_at": of.updated_at,
        "valid_from": of.valid_from,
        "valid_to": of.valid_to,
        "changed_by": of.changed_by,
    }


def current(project: str, of: Entity, models: Iterable[KnownModel]) -> Properties:
    """The properties of a current version that has no vectors yet: what finds it, and the models that it lacks."""
    numbers = [model.number for model in models]
    return version(project, of) | {
        "folded": folded(of.name),
        "text": [of.name, of.entity_type, *of.observations],
        "models": max(numbers, default=0),
        **{missing(number): waiting(of.valid_from, of.uid) for number in numbers},
    }


def missing(number: int) -> str:
    """The property that an entity has only while it lacks an embedding by this model."""
    return f"missing_{number}"


def fence(number: int) -> str:
    """The property that an entity has only while it has an embedding by this model."""
    return f"fence_{number}"


def waiting(since: int, uid: str) -> str:
    """What a missing embedding is ordered by."""
    return f"{since:016} {uid}"


def relation(found: Properties) -> Relation:
    metadata = found.get("metadata")
    return Relation(
        uid=found["uid"],
        from_=found["from"],
        to=found["to"],
        relation_type=found["relation_type"],
        strength=found.get("strength"),
        confidence=found.get("confidence"),
        metadata=None if metadata is None else msgspec.json.decode(metadata, type=dict[str, Any]),
        version=found["version"],
        created_at=found["created_at"],
        updated_at=found["updated_at"],
        valid_from=found["valid_from"],
        valid_to=found.get("valid_to"),
        changed_by=found.get("changed_by"),
    )


def facts(of: NewRelation) -> Properties:
    """What a relation states, as properties."""
    return {
        "strength": of.strength,
        "confidence": of.confidence,
        "metadata": None if of.metadata is None else msgspec.json.encode(of.metadata).decode(),
        "changed_by": of.changed_by,
    }
