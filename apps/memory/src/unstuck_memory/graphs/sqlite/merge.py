"""Makes one entity of two."""

from __future__ import annotations

from unstuck_memory.errors import InvalidInput, NotFound
from unstuck_memory.graphs.sqlite import rows
from unstuck_memory.graphs.sqlite.entities import archive, find, save
from unstuck_memory.graphs.sqlite.relations import (
    current_relation,
    ends_named,
    facts,
    filled,
    stated,
    write_new,
    write_version,
)
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.values import Merge, NewRelation, Relation


def merge_entities(tx: Transaction, project: str, source: str, into: str, *, dry_run: bool) -> Merge:
    if source == into:
        raise InvalidInput(f"entity {source!r} cannot be merged into itself: name two entities")
    if dry_run:
        observations, relations = tx.trial(lambda: _merged(tx, project, source, into))
    else:
        observations, relations = _merged(tx, project, source, into)
    return Merge(source=source, into=into, observations=observations, relations=relations, dry_run=dry_run)


def _merged(tx: Transaction, project: str, source: str, into: str) -> tuple[int, int]:
    """How many observations and relations went over."""
    drafts, ids = find(tx, project, (source, into))
    for name in (source, into):
        if name not in drafts:
            raise NotFound(f"there is no entity {name!r} in project {project!r}: name one that exists")
    observations = drafts[into].add(drafts[source].observations)
    save(tx, project, drafts[into], ids[into])
    found = [rows.relation(row) for row in tx.rows("relations_of_entity", id=ids[source])]
    archive(tx, drafts[source], ids[source])
    moving = [relation for relation in found if {relation.from_, relation.to} != {source, into}]
    for relation in moving:
        _move(tx, project, relation, source, into)
    return len(observations), len(moving)


def _move(tx: Transaction, project: str, old: Relation, source: str, into: str) -> None:
    what = stated(old)
    moved = NewRelation(
        from_=into if old.from_ == source else old.from_,
        to=into if old.to == source else old.to,
        relation_type=old.relation_type, strength=what.strength, confidence=what.confidence, metadata=what.metadata,
        changed_by=what.changed_by,
    )  # fmt: skip
    there = current_relation(tx, project, moved.key)
    if not there:
        ends = ends_named(tx, project, (moved.from_, moved.to))
        write_new(tx, project, ends[moved.from_], ends[moved.to], moved, like=old)
        return
    existing = rows.relation(there[0])
    before = stated(existing)
    after = filled(before, moved, changed_by=before.changed_by)
    if facts(after) != facts(before):
        write_version(tx, there[0], after, updated_at=max(existing.updated_at, old.updated_at))
