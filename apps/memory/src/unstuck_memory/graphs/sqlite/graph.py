"""SqliteGraph: the Graph protocol on one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from unstuck_memory.errors import GraphUnavailable
from unstuck_memory.graphs.sqlite import entities, reading, relations, rows
from unstuck_memory.graphs.sqlite.migrate import complete, migrate
from unstuck_memory.graphs.sqlite.threads import Step, Threads
from unstuck_memory.graphs.statements import statements
from unstuck_memory.values import (
    Entity,
    EntityChange,
    NewEntity,
    NewRelation,
    Observations,
    Relation,
    RelationChange,
    RelationKey,
    Size,
)

T = TypeVar("T")


class SqliteGraph:
    """One thread does all writes, a few read; none blocks the event loop. The path is relative to where the graph is made."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)  # noqa: PTH100 - does not follow links
        self._sql = {
            name: text.replace("{entity}", rows.ENTITY).replace("{relation}", rows.RELATION)
            for name, text in statements("unstuck_memory.graphs.sqlite", "sql").items()
        }
        self._threads: Threads | None = None

    async def __aenter__(self) -> Self:
        threads = Threads(self._path, self._sql)
        try:
            await threads.open()
        except BaseException:
            await threads.close()
            raise
        self._threads = threads
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads is not None:
            await self._threads.close()

    async def migrate(self) -> None:
        if not await self._read(complete):
            await self._write(migrate)

    async def now(self) -> int:
        return await self._read(lambda tx: tx.now)

    async def create_entities(self, project: str, new: Sequence[NewEntity]) -> list[EntityChange]:
        return await self._write(lambda tx: entities.create(tx, project, new))

    async def add_observations(self, project: str, additions: Sequence[Observations]) -> list[EntityChange]:
        return await self._write(lambda tx: entities.add(tx, project, additions))

    async def delete_observations(
        self, project: str, deletions: Sequence[Observations]
    ) -> list[EntityChange]:
        return await self._write(lambda tx: entities.delete_observations(tx, project, deletions))

    async def delete_entities(self, project: str, names: Sequence[str]) -> list[bool]:
        return await self._write(lambda tx: entities.delete(tx, project, names))

    async def create_relations(self, project: str, new: Sequence[NewRelation]) -> list[RelationChange]:
        return await self._write(lambda tx: relations.create(tx, project, new))

    async def update_relation(self, project: str, relation: NewRelation) -> Relation:
        return await self._write(lambda tx: relations.update(tx, project, relation))

    async def delete_relations(self, project: str, keys: Sequence[RelationKey]) -> list[bool]:
        return await self._write(lambda tx: relations.delete(tx, project, keys))

    async def get_entities(self, project: str, names: Sequence[str]) -> list[Entity]:
        return await self._read(lambda tx: reading.named(tx, project, names))

    async def get_by_uid(self, uids: Sequence[str]) -> list[Entity]:
        return await self._read(lambda tx: reading.by_uid(tx, uids))

    async def list_entities(
        self, project: str, limit: int, *, after: str | None = None, at: int | None = None
    ) -> list[Entity]:
        return await self._read(lambda tx: reading.listed(tx, project, limit, after, at))

    async def relations_of(
        self, project: str, names: Sequence[str], *, at: int | None = None, limit: int = 1000
    ) -> list[Relation]:
        return await self._read(lambda tx: reading.relations_of(tx, project, names, at, limit))

    async def get_relation(self, project: str, key: RelationKey) -> Relation | None:
        return await self._read(lambda tx: reading.relation(tx, project, key))

    async def entity_history(self, project: str, name: str) -> list[Entity]:
        return await self._read(lambda tx: reading.entity_history(tx, project, name))

    async def relation_history(self, project: str, key: RelationKey) -> list[Relation]:
        return await self._read(lambda tx: reading.relation_history(tx, project, key))

    async def size(self, project: str) -> Size:
        return await self._read(lambda tx: reading.size(tx, project))

    async def _write(self, step: Step[T]) -> T:
        return await self._opened().write(step)

    async def _read(self, step: Step[T]) -> T:
        return await self._opened().read(step)

    def _opened(self) -> Threads:
        if self._threads is None:
            raise GraphUnavailable(
                f"graph file {self._path!r} is not open: use the graph inside 'async with'"
            )
        return self._threads
