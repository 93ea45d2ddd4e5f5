"""Neo4jGraph: the Graph protocol on one database of a Neo4j server, 5.26 or later."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from unstuck import ConfigError, neo4j_url
from unstuck_memory.archive_records import ArchiveRecord
from unstuck_memory.errors import GraphUnavailable, SettingsError
from unstuck_memory.graphs.neo4j import archive, purge, reading, search
from unstuck_memory.graphs.neo4j import embeddings as vectors
from unstuck_memory.graphs.neo4j.client import Client, Transaction
from unstuck_memory.graphs.neo4j.entities import (
    add_observations,
    create_entities,
    delete_entities,
    delete_observations,
)
from unstuck_memory.graphs.neo4j.merge import merge_entities
from unstuck_memory.graphs.neo4j.migrate import migrate
from unstuck_memory.graphs.neo4j.models import Models
from unstuck_memory.graphs.neo4j.relations import create_relations, delete_relations, update_relation
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


class Neo4jGraph:
    """Without a password it connects without a user, too."""

    def __init__(self, uri: str, username: str, password: str, database: str) -> None:
        self._uri = uri
        self._auth = (username, password) if password else None
        self._database = database
        self._opened: Client | None = None
        self._models: Models | None = None

    async def __aenter__(self) -> Self:
        try:
            neo4j_url(self._uri, what="the graph's address")  # the driver's message would repeat a password
        except ConfigError as error:
            raise SettingsError(str(error)) from None
        self._opened = Client(self._uri, self._auth, self._database)
        self._models = Models(self._opened)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    async def migrate(self) -> None:
        await migrate(self._client)

    async def now(self) -> int:
        [[now]] = await self._client.rows("now")
        return int(now)

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
        return await purge.purge(self._client, project, await self.now() - older_than)

    async def create_relations(self, project: str, relations: Sequence[NewRelation]) -> list[RelationChange]:
        return await self._write(lambda tx: create_relations(tx, project, relations))

    async def update_relation(self, project: str, relation: NewRelation) -> Relation:
        return await self._write(lambda tx: update_relation(tx, project, relation))

    async def delete_relations(self, project: str, keys: Sequence[RelationKey]) -> list[bool]:
        return await self._write(lambda tx: delete_relations(tx, project, keys))

    async def get_entities(self, project: str, names: Sequence[str]) -> list[Entity]:
        return await reading.named(self._client, project, names)

    async def get_by_uid(self, uids: Sequence[str]) -> list[Entity]:
        return await reading.by_uid(self._client, uids)

    async def list_entities(
        self, project: str, limit: int, *, after: str | None = None, at: int | None = None
    ) -> list[Entity]:
        return await reading.listed(self._client, project, limit, after, at)

    async def relations_of(
        self, project: str, names: Sequence[str], *, at: int | None = None, limit: int = 1000
    ) -> list[Relation]:
        return await reading.relations_of(self._client, project, names, at, limit)

    async def get_relation(self, project: str, key: RelationKey) -> Relation | None:
        return await reading.relation(self._client, project, key)

    async def entity_history(self, project: str, name: str) -> list[Entity]:
        return await reading.entity_history(self._client, project, name)

    async def relation_history(self, project: str, key: RelationKey) -> list[Relation]:
        return await reading.relation_history(self._client, project, key)

    async def size(self, project: str) -> Size:
        return await reading.size(self._client, project)

    async def use_model(self, model: Model) -> None:
        await self._known.use(model)

    async def current(self, versions: Sequence[Version]) -> list[Entity | None]:
        return await reading.current(self._client, versions)

    async def known_vectors(self, model: Model, hashes: Sequence[bytes]) -> Mapping[bytes, Vector]:
        known = await self._known.find(model)
        return await vectors.known_vectors(self._client, known, hashes) if known else {}

    async def store_embeddings(self, embeddings: Sequence[Embedding]) -> list[bool]:
        refuse_wrong_vectors(embeddings)
        return await self._write(lambda tx: vectors.store_embeddings(tx, embeddings))

    async def without_embeddings(
        self, model: Model, limit: int = 10, *, project: str | None = None, after: Entity | None = None
    ) -> list[Entity]:
        return await self._known.without_embeddings(model, limit, project, after)

    async def coverage(self, project: str, model: Model) -> Coverage:
        return await self._known.coverage(project, model)

    async def embedding_of(self, uid: str, model: Model) -> Embedding | None:
        known = await self._known.find(model)
        return await vectors.embedding_of(self._client, uid, model, known) if known else None

    async def keyword(
        self, project: str, words: Sequence[str], limit: int, *, types: Sequence[str] | None = None
    ) -> list[KeywordHit]:
        return await search.keyword(self._client, project, words, limit, types)

    async def nearest(
        self, project: str, model: Model, vector: Vector, limit: int, *, types: Sequence[str] | None = None
    ) -> list[VectorHit]:
        known = await self._known.find(model)
        return await search.nearest(self._client, project, known, vector, limit, types) if known else []

    async def compare(
        self, project: str, model: Model, vector: Vector, uids: Sequence[str]
    ) -> list[VectorHit]:
        known = await self._known.find(model)
        return await search.compare(self._client, project, known, vector, uids) if known else []

    def export(self, project: str) -> AsyncIterator[ArchiveRecord]:
        """Each entity is as it was at one moment, with its relations as they are a little later."""
        return archive.export(self._client, project)

    async def restore(self, project: str, records: Sequence[ArchiveRecord]) -> int:
        return await self._write(lambda tx: archive.restore(tx, project, records))

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._client.write(work)

    @property
    def _client(self) -> Client:
        if self._opened is None:
            raise GraphUnavailable(f"the graph at {self._uri} is not open: use it inside 'async with'")
        return self._opened

    @property
    def _known(self) -> Models:
        if self._models is None:
            raise GraphUnavailable(f"the graph at {self._uri} is not open: use it inside 'async with'")
        return self._models
