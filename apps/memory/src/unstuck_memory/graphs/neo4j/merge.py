"""Makes one entity of two."""

from __future__ import annotations

from msgspec.structs import replace

from unstuck_memory.errors import InvalidInput, NotFound
from unstuck_memory.graphs import drafts
from unstuck_memory.graphs.neo4j import entities, relations
from unstuck_memory.graphs.neo4j.client import Transaction
from unstuck_memory.graphs.neo4j.entities import Found
from unstuck_memory.values import Merge, NewRelation, Relation


async def merge_entities(tx: Transaction, project: str, source: str, into: str, *, dry_run: bool) -> Merge:
    if source == into:
        raise InvalidInput(f"source and into are both {into!r}: name two entities")
    found = await entities.lock(tx, project, [source, into])
    for name in (source, into):
        if name not in found.entities:
            raise NotFound(f"there is no entity {name!r} in project {project!r}: read the graph first")
    source_entity = found.entities[source]
    there = await entities.relations_of(tx, [source_entity.uid])
    others = await entities.lock(
        tx, project, {end for one in there for end in (one.from_, one.to)} - {source, into}
    )
    found = found._replace(entities=found.entities | others.entities, now=max(found.now, others.now))
    moving = [(one, _moved(one, source, into)) for one in there if {one.from_, one.to} != {source, into}]
    drafted = drafts.drafted([found.entities[into]])
    added = drafted[into].add(source_entity.observations)
    if not dry_run:
        await entities.archive(tx, [source_entity], found)
        await _write(tx, project, found, moving)
        await entities.save(tx, project, drafted.values(), found)
    return Merge(source=source, into=into, observations=len(added), relations=len(moving), dry_run=dry_run)


def _moved(relation: Relation, source: str, into: str) -> NewRelation:
    ends = {
        "from_": into if relation.from_ == source else relation.from_,
        "to": into if relation.to == source else relation.to,
    }
    return replace(relations.stated(relation), **ends)


async def _write(
    tx: Transaction, project: str, found: Found, moving: list[tuple[Relation, NewRelation]]
) -> None:
    keys = [after.key for _, after in moving]
    there, free = await relations.current(tx, found, keys)
    versions: list[tuple[Relation | None, Relation]] = []
    for old, moved in moving:
        before = there.get(moved.key)
        if before is None:
            versions.append((None, relations.begin(moved, found, free[moved.key], like=old)))
            continue
        merged = relations.together(relations.stated(before), moved)
        if not relations.same(merged, relations.stated(before)):
            updated_at = max(before.updated_at, old.updated_at)
            versions.append((before, relations.go_on(before, merged, found.now, updated_at=updated_at)))
    await relations.write(tx, project, found, versions)
