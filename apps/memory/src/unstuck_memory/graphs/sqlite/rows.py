"""Rows of the tables as the values that callers see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from unstuck_memory.values import Entity, Relation

ENTITY = """
entity.id, entity.uid, entity.name, entity.type, entity.observations, entity.version, entity.created_at, entity.updated_at,
entity.valid_from, entity.valid_to, entity.changed_by
"""
RELATION = """
relation.id, relation.uid, source.name, target.name, relation.type, relation.strength, relation.confidence, relation.metadata,
relation.version, relation.created_at, relation.updated_at, relation.valid_from, relation.valid_to, relation.changed_by
"""
Row = tuple[Any, ...]
_observations = msgspec.json.Decoder(tuple[str, ...])


def entity(row: Row) -> Entity:
    _, uid, name, kind, observations, version, created_at, updated_at, valid_from, valid_to, changed_by = row
    return Entity(
        uid=uid,
        name=name,
        entity_type=kind,
        observations=_observations.decode(observations),
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        valid_from=valid_from,
        valid_to=valid_to,
        changed_by=changed_by,
    )


def relation(row: Row) -> Relation:
    _, uid, from_, to, kind, strength, confidence, metadata, *rest = row
    version, created_at, updated_at, valid_from, valid_to, changed_by = rest
    return Relation(
        uid=uid,
        from_=from_,
        to=to,
        relation_type=kind,
        strength=strength,
        confidence=confidence,
        metadata=None if metadata is None else msgspec.json.decode(metadata, type=dict[str, Any]),
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        valid_from=valid_from,
        valid_to=valid_to,
        changed_by=changed_by,
    )


def text(value: object) -> str:
    """A value as JSON; tuples and lists become arrays, bytes become base64."""
    return msgspec.json.encode(value).decode()


def texts(values: Iterable[object]) -> str:
    """Values as a JSON array, for ``json_each``."""
    return text(list(values))
