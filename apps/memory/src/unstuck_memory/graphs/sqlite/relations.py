"""Writes relations. What one call states of a relation is one new version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from unstuck_memory.errors import NotFound
from unstuck_memory.graphs.sqlite import rows
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.values import NewRelation, Relation, RelationChange, RelationKey


class End(NamedTuple):
    """A current entity to which relations lead."""

    row_id: int
    created_at: int


def create_relations(tx: Transaction, project: str, relations: Sequence[NewRelation]) -> list[RelationChange]:
    ends = ends_named(tx, project, (name for relation in relations for name in (relation.from_, relation.to)))
    stated: dict[RelationKey, NewRelation] = {}
    for relation in relations:
        stated[relation.key] = _together(stated.get(relation.key), relation)
    written: dict[RelationKey, RelationChange] = {}
    answers = []
    for relation in relations:
        key = relation.key
        unknown = [name for name in (key.from_, key.to) if name not in ends]
        if unknown:
            problem = f"there is no entity {unknown[0]!r} in project {project!r}: create it first"
            answers.append(RelationChange(problem=problem))
        elif key in written:
            answers.append(RelationChange(relation=written[key].relation, changed=written[key].changed))
        else:
            written[key] = _state(tx, project, ends, stated[key])
            answers.append(written[key])
    return answers


def update_relation(tx: Transaction, project: str, relation: NewRelation) -> Relation:
    ends = ends_named(tx, project, (relation.from_, relation.to))
    if not current_relation(tx, project, relation.key):
        raise NotFound(
            f"there is no relation {relation.relation_type!r} from {relation.from_!r} to {relation.to!r} in project "
            f"{project!r}: create it first"
        )
    updated = _state(tx, project, ends, relation).relation
    assert updated is not None
    return updated


def delete_relations(tx: Transaction, project: str, keys: Sequence[RelationKey]) -> list[bool]:
    found = []
    for key in keys:
        there = current_relation(tx, project, key)
        if there:
            tx.change("relation_archive", id=there[0][0], now=tx.now)
        found.append(bool(there))
    return found


def current_relation(tx: Transaction, project: str, key: RelationKey) -> list[rows.Row]:
    """The row of the current version, if there is one."""
    return tx.rows(
        "relation_named", project=project, **{"from": key.from_, "to": key.to, "type": key.relation_type}
    )


def ends_named(tx: Transaction, project: str, names: Iterable[str]) -> dict[str, End]:
    found = tx.rows("ends", project=project, names=rows.texts(set(names)))
    return {name: End(row_id, created_at) for name, row_id, created_at in found}


def write_new(
    tx: Transaction,
    project: str,
    source: End,
    target: End,
    relation: NewRelation,
    *,
    like: Relation | None = None,
) -> None:
    """Write a first version; one that moved here is as old as the one that it is ``like``."""
    tx.change(
        "relation_create", uid=str(uuid4()), project=project, source=source.row_id, target=target.row_id,
        type=relation.relation_type, **_values(relation), now=tx.now, ends_since=max(source.created_at, target.created_at),
        created_at=like.created_at if like else None, updated_at=like.updated_at if like else None,
    )  # fmt: skip


def write_version(
    tx: Transaction, row: rows.Row, after: NewRelation, *, updated_at: int | None = None
) -> None:
    """Write the next version; it is stated now unless ``updated_at`` is given."""
    before = rows.relation(row)
    valid_to = tx.value("relation_change", id=row[0], **_values(after), updated_at=updated_at, now=tx.now)
    tx.change(
        "relation_keep", id=row[0], strength=before.strength, confidence=before.confidence, metadata=row[7],
        version=before.version, updated_at=before.updated_at, valid_from=before.valid_from, valid_to=valid_to,
        changed_by=before.changed_by,
    )  # fmt: skip


def stated(relation: Relation) -> NewRelation:
    """What a relation states, as if it was new."""
    return NewRelation(
        from_=relation.from_, to=relation.to, relation_type=relation.relation_type, strength=relation.strength,
        confidence=relation.confidence, metadata=relation.metadata, changed_by=relation.changed_by,
    )  # fmt: skip


def _state(tx: Transaction, project: str, ends: dict[str, End], relation: NewRelation) -> RelationChange:
    there = current_relation(tx, project, relation.key)
    changed = True
    if not there:
        write_new(tx, project, ends[relation.from_], ends[relation.to], relation)
    else:
        before = stated(rows.relation(there[0]))
        after = _together(before, relation)
        changed = facts(after) != facts(before)
        if changed:
            write_version(tx, there[0], after)
        else:
            tx.change("relation_state_again", id=there[0][0], now=tx.now)
    [row] = current_relation(tx, project, relation.key)
    return RelationChange(relation=rows.relation(row), created=not there, changed=changed)


def _together(earlier: NewRelation | None, later: NewRelation) -> NewRelation:
    """What is given replaces what was."""
    return filled(later, earlier, changed_by=later.changed_by) if earlier else later


def filled(relation: NewRelation, missing: NewRelation, *, changed_by: str | None) -> NewRelation:
    """The relation, and what it does not state from another one."""
    return NewRelation(
        from_=relation.from_, to=relation.to, relation_type=relation.relation_type,
        strength=missing.strength if relation.strength is None else relation.strength,
        confidence=missing.confidence if relation.confidence is None else relation.confidence,
        metadata=missing.metadata if relation.metadata is None else relation.metadata,
        changed_by=changed_by,
    )  # fmt: skip


def facts(relation: NewRelation) -> tuple[Any, ...]:
    return relation.strength, relation.confidence, relation.metadata


def _values(relation: NewRelation) -> dict[str, Any]:
    return {
        "strength": relation.strength,
        "confidence": relation.confidence,
        "metadata": None if relation.metadata is None else rows.text(relation.metadata),
        "changed_by": relation.changed_by,
    }
