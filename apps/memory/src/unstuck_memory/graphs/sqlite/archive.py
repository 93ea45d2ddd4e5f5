"""Everything of a project, history too, as records; and back."""

from __future__ import annotations

from collections.abc import Sequence

from unstuck_memory.archive_records import ArchiveRecord, EntityRecord, RelationRecord
from unstuck_memory.errors import InvalidInput
from unstuck_memory.graphs.sqlite import rows
from unstuck_memory.graphs.sqlite.entities import index, write_row
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.values import Entity

PAGE = 500  # records that are in memory at a time


def relation_record(row: rows.Row) -> RelationRecord:
    names = RelationRecord.__struct_fields__
    return RelationRecord(**dict(zip(names, row, strict=True)))


def restore(tx: Transaction, project: str, records: Sequence[ArchiveRecord]) -> int:
    entities = [record.entity for record in records if isinstance(record, EntityRecord)]
    relations = [record for record in records if isinstance(record, RelationRecord)]
    # The newest version first: its row is the one that relations refer to.
    entities.sort(key=lambda entity: -entity.version)
    return sum(_restore_entity(tx, project, entity) for entity in entities) + sum(
        _restore_relation(tx, project, relation) for relation in relations
    )


def _restore_entity(tx: Transaction, project: str, entity: Entity) -> bool:
    """Whether the version was new. What is newer than the current version here is not: that one stays."""
    there = tx.rows("restore_entity_there", uid=entity.uid)
    versions = {version for version, *_ in there}
    if there and there[0][3] != project:
        raise InvalidInput(
            f"entity {entity.name!r} (uid {entity.uid}) of the archive is in project {there[0][3]!r} of this graph: restore it there"
        )
    newer = bool(there) and entity.version > max(versions)
    if entity.version in versions or (newer and any(valid_to is None for _, _, valid_to, _ in there)):
        return False
    if entity.valid_to is None and there and not newer:
        return False
    if entity.valid_to is None and tx.rows("ends", project=project, names=rows.texts([entity.name])):
        raise InvalidInput(
            f"another entity of project {project!r} has the name {entity.name!r}: merge it into another one or delete it first"
        )
    row_id = write_row(tx, project, entity)
    if newer:
        tx.change("restore_ends", old=there[0][1], new=row_id)
    if entity.valid_to is None:
        index(tx, project, row_id, entity)
    return True


def _restore_relation(tx: Transaction, project: str, relation: RelationRecord) -> bool:
    ends = {
        uid: tx.rows("restore_end", project=project, uid=uid) for uid in (relation.from_uid, relation.to_uid)
    }
    for uid, end in ends.items():
        if not end:
            raise InvalidInput(
                f"relation {relation.uid} of the archive leads to entity {uid}, which is neither in the archive nor in project "
                f"{project!r}: restore the whole archive"
            )
    [(source, source_end)], [(target, target_end)] = ends[relation.from_uid], ends[relation.to_uid]
    there = tx.rows(
        "restore_relation_there", uid=relation.uid, source=source, target=target, type=relation.relation_type
    )
    versions = {version for uid, version, _ in there if uid == relation.uid}
    is_current = any(valid_to is None for *_, valid_to in there)
    if relation.version in versions:
        return False
    if relation.valid_to is None:
        if (
            is_current
            or {source_end, target_end} != {None}
            or any(version > relation.version for version in versions)
        ):
            return False
    elif is_current and versions and relation.version > max(versions):
        return False
    tx.change(
        "restore_relation", uid=relation.uid, project=project, source=source, target=target, type=relation.relation_type,
        strength=relation.strength, confidence=relation.confidence, metadata=relation.metadata, version=relation.version,
        created_at=relation.created_at, updated_at=relation.updated_at, valid_from=relation.valid_from,
        valid_to=relation.valid_to, changed_by=relation.changed_by,
    )  # fmt: skip
    return True
