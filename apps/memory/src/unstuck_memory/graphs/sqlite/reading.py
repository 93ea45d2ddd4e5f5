"""Reads a project, now or at a time."""

from __future__ import annotations

from collections.abc import Sequence

from unstuck_memory.graphs.sqlite import rows
from unstuck_memory.graphs.sqlite.relations import current_relation
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.values import Entity, Relation, RelationKey, Size


def named(tx: Transaction, project: str, names: Sequence[str]) -> list[Entity]:
    return [rows.entity(row) for row in tx.rows("entities_named", project=project, names=rows.texts(names))]


def by_uid(tx: Transaction, uids: Sequence[str]) -> list[Entity]:
    return [rows.entity(row) for row in tx.rows("entities_by_uid", uids=rows.texts(uids))]


def listed(tx: Transaction, project: str, limit: int, after: str | None, at: int | None) -> list[Entity]:
    after = after or ""  # no name is empty
    if at is None:
        found = tx.rows("entities_listed", project=project, after=after, limit=limit)
    else:
        found = tx.rows("entities_listed_at", project=project, after=after, limit=limit, at=at)
    return [rows.entity(row) for row in found]


def relations_of(
    tx: Transaction, project: str, names: Sequence[str], at: int | None, limit: int
) -> list[Relation]:
    asked = rows.texts(names)
    if at is None:
        found = tx.rows("relations_of", project=project, names=asked, limit=limit)
    else:
        found = tx.rows("relations_of_at", project=project, names=asked, limit=limit, at=at)
    return [rows.relation(row) for row in found]


def relation(tx: Transaction, project: str, key: RelationKey) -> Relation | None:
    found = current_relation(tx, project, key)
    return rows.relation(found[0]) if found else None


def entity_history(tx: Transaction, project: str, name: str) -> list[Entity]:
    return [rows.entity(row) for row in tx.rows("entity_history", project=project, name=name)]


def relation_history(tx: Transaction, project: str, key: RelationKey) -> list[Relation]:
    found = tx.rows(
        "relation_history", project=project, **{"from": key.from_, "to": key.to, "type": key.relation_type}
    )
    return [rows.relation(row) for row in found]


def size(tx: Transaction, project: str) -> Size:
    [(entities, relations, archived)] = tx.rows("size", project=project)
    return Size(entities=entities, relations=relations, archived=archived)
