"""What an archive of a graph consists of: every version of every entity and relation."""

from __future__ import annotations

from msgspec import Struct

from unstuck_memory.values import Entity


class EntityRecord(Struct, frozen=True, tag="entity", tag_field="record"):
    """One version of an entity."""

    entity: Entity


class RelationRecord(Struct, frozen=True, tag="relation", tag_field="record", kw_only=True):
    """One version of a relation. Its ends are the uids of entities, because a name may be given again."""

    uid: str
    from_uid: str
    to_uid: str
    relation_type: str
    strength: float | None
    confidence: float | None
    metadata: str | None
    version: int
    created_at: int
    updated_at: int
    valid_from: int
    valid_to: int | None
    changed_by: str | None


ArchiveRecord = EntityRecord | RelationRecord
