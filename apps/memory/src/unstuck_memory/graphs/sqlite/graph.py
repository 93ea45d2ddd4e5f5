"""SqliteGraph: the Graph protocol on one file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from unstuck_memory.archive_records import ArchiveRecord, EntityRecord
from unstuck_memory.errors import GraphUnavailable
from unstuck_memory.graphs.sqlite import archive, purge, reading, rows, search
from unstuck_memory.graphs.sqlite import embeddings as vectors
from unstuck_memory.graphs.sqlite.entities import (
    add_observations,
    create_entities,
    delete_entities,
    delete_observations,
)
from unstuck_memory.graphs.sqlite.merge import merge_entities
from unstuck_memory.graphs.sqlite.migrate import complete, migrate
from unstuck_memory.graphs.sqlite.relations import create_relations, delete_relations, update_relation
from unstuck_memory.graphs.sqlite.threads import Step, Threads
from unstuck_memory.graphs.statements import statements
from unstuck_memory.graphs.unit_vectors import refuse_wrong_vectors
from unstuck_memory.values import (
    Coverage,
    Entity,
    EntityChange,
    Merge,
    NewEntity,
    NewRelation,
    Observations,
    Purge,
    Relation,
    RelationChange,
    RelationKey,
    Size,
    Version,
)
from unstuck_memory.vectors import Embedding, KeywordHit, Model, Vector, VectorHit

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
        self._vectors = search.VectorSearch()

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

    async def create_entities(self, project: str, entities: Sequence[NewEntity]) -> list[EntityChange]:
        return await self._write(lambda tx: create_entities(tx, project, entities))

    async def add_observations(self, project: str, additions: Sequence[Observations]) -> list[EntityChange]:
        return await self._write(lambda tx: add_observations(tx, project, additions))

    async def delete_observations(
        self, project: str, deletions: Sequence[Observations]
    ) -> list[EntityChange]:
        return await self._write(lambda tx: delete_observations(tx, project, deletions))

    async def delete_entities(self, project: str, names: Sequence[str]) -> list[bool]:
        return await self._write(lambda tx: delete_entities(tx, project, names))

    async def merge_entities(self, project: str, source: str, into: str, *, dry_run: bool = False) -> Merge:
        return await self._write(lambda tx: merge_entities(tx, project, source, into, dry_run=dry_run))

    async def purge(self, project: str, older_than: int) -> Purge:
        before = await self.now() - older_than
        relations = await self._in_steps(lambda tx: purge.purge_relations(tx, project, before))
        entities = await self._in_steps(lambda tx: purge.purge_entities(tx, project, before))
        await self._in_steps(lambda tx: purge.purge_vectors(tx, before))
        return Purge(entities=entities, relations=relations)

    async def create_relations(self, project: str, relations: Sequence[NewRelation]) -> list[RelationChange]:
        return await self._write(lambda tx: create_relations(tx, project, relations))

    async def update_relation(self, project: str, relation: NewRelation) -> Relation:
        return await self._write(lambda tx: update_relation(tx, project, relation))

    async def delete_relations(self, project: str, keys: Sequence[RelationKey]) -> list[bool]:
        return await self._write(lambda tx: delete_relations(tx, project, keys))

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

    async def use_model(self, model: Model) -> None:
        if not await self._read(lambda tx: vectors.is_known(tx, model)):
            await self._write(lambda tx: vectors.use_model(tx, model))

    async def current(self, versions: Sequence[Version]) -> list[Entity | None]:
        return await self._read(lambda tx: vectors.current(tx, versions))

    async def known_vectors(self, model: Model, hashes: Sequence[bytes]) -> Mapping[bytes, Vector]:
        return await self._read(lambda tx: vectors.known_vectors(tx, model, hashes))

    async def store_embeddings(self, embeddings: Sequence[Embedding]) -> list[bool]:
        refuse_wrong_vectors(embeddings)
        return await self._write(lambda tx: vectors.store(tx, embeddings))

    async def without_embeddings(
        self, model: Model, limit: int = 10, *, project: str | None = None, after: Entity | None = None
    ) -> list[Entity]:
        done = await self._read(lambda tx: vectors.all_marked(tx, model))
        while not done:
            done = await self._write(lambda tx: vectors.mark(tx, model))
        return await self._read(lambda tx: vectors.without(tx, model, limit, project, after))

    async def coverage(self, project: str, model: Model) -> Coverage:
        return await self._read(lambda tx: vectors.coverage(tx, project, model))

    async def embedding_of(self, uid: str, model: Model) -> Embedding | None:
        return await self._read(lambda tx: vectors.embedding_of(tx, uid, model))

    async def keyword(
        self, project: str, words: Sequence[str], limit: int, *, types: Sequence[str] | None = None
    ) -> list[KeywordHit]:
        return await self._read(lambda tx: search.keyword(tx, project, words, limit, types))

    async def nearest(
        self, project: str, model: Model, vector: Vector, limit: int, *, types: Sequence[str] | None = None
    ) -> list[VectorHit]:
        found = self._vectors.nearest
        return await self._read(lambda tx: found(tx, project, model, vector, limit, types))

    async def compare(
        self, project: str, model: Model, vector: Vector, uids: Sequence[str]
    ) -> list[VectorHit]:
        return await self._read(lambda tx: search.compare(tx, project, model, vector, uids))

    async def export(self, project: str) -> AsyncIterator[ArchiveRecord]:
        """All records are of one moment, also if somebody writes meanwhile."""
        async with self._opened().snapshot() as snapshot:
            async for row in snapshot.rows("export_entities", archive.PAGE, project=project):
                yield EntityRecord(rows.entity(row))
            async for row in snapshot.rows("export_relations", archive.PAGE, project=project):
                yield archive.relation_record(row)

    async def restore(self, project: str, records: Sequence[ArchiveRecord]) -> int:
        return await self._write(lambda tx: archive.restore(tx, project, records))

    async def _in_steps(self, step: Step[int]) -> int:
        """Repeat a step in transactions of its own until it finds less than it may take at once."""
        total = done = await self._write(step)
        while done == purge.AT_ONCE:
            done = await self._write(step)
            total += done
        return total

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
