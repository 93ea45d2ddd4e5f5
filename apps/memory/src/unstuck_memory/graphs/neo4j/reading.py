"""Reads a project, now or at a time."""

from __future__ import annotations

from collections.abc import Sequence

from unstuck_memory.graphs.neo4j import rows
from unstuck_memory.graphs.neo4j.client import Client
from unstuck_memory.values import Entity, Relation, RelationKey, Size, Version


async def named(client: Client, project: str, names: Sequence[str]) -> list[Entity]:
    found = _entities(await client.rows("get_entities", project=project, names=list(names)))
    return sorted(found, key=lambda entity: entity.name)


async def by_uid(client: Client, uids: Sequence[str]) -> list[Entity]:
    return _entities(await client.rows("get_by_uid", uids=list(uids)))


async def current(client: Client, versions: Sequence[Version]) -> list[Entity | None]:
    asked = [{"uid": one.uid, "version": one.version} for one in versions]
    found = {one.uid: one for one in _entities(await client.rows("current", versions=asked))}
    return [
        entity if (entity := found.get(one.uid)) and entity.version == one.version else None
        for one in versions
    ]


async def listed(client: Client, project: str, limit: int, after: str | None, at: int | None) -> list[Entity]:
    after = after or ""  # no name is empty
    if at is None:
        found = await client.rows("list_entities", project=project, after=after, limit=limit)
    else:
        found = await client.rows("list_entities_at", project=project, after=after, limit=limit, at=at)
    return _entities(found)


async def relations_of(
    client: Client, project: str, names: Sequence[str], at: int | None, limit: int
) -> list[Relation]:
    if at is None:
        found = await client.rows("relations_of", project=project, names=list(names), limit=limit)
    else:
        found = await client.rows("relations_of_at", project=project, names=list(names), limit=limit, at=at)
    return _relations(found)


async def relation(client: Client, project: str, key: RelationKey) -> Relation | None:
    found = await client.run(client.texts["get_relation"], _key(project, key))
    return next(iter(_relations(found)), None)


async def entity_history(client: Client, project: str, name: str) -> list[Entity]:
    return _entities(await client.rows("entity_history", project=project, name=name))


async def relation_history(client: Client, project: str, key: RelationKey) -> list[Relation]:
    return _relations(await client.run(client.texts["relation_history"], _key(project, key)))


async def size(client: Client, project: str) -> Size:
    [[entities, relations, archived]] = await client.rows("size", project=project)
    return Size(entities=entities, relations=relations, archived=archived)


def _entities(found: list[list[rows.Properties]]) -> list[Entity]:
    return [rows.entity(properties) for (properties,) in found]


def _relations(found: list[list[rows.Properties]]) -> list[Relation]:
    return [rows.relation(properties) for (properties,) in found]


def _key(project: str, key: RelationKey) -> rows.Properties:
    return {"project": project, "from": key.from_, "to": key.to, "type": key.relation_type}
