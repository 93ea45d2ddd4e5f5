"""The Graph protocol: all that the memory asks of a place where a knowledge graph lives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from unstuck_memory.archive_records import ArchiveRecord
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


class Lifecycle(Protocol):
    """Opens a graph and brings it up to date."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def migrate(self) -> None:
        """Bring the schema up to date. Additive, repeatable, safe from many processes at once."""

    async def now(self) -> int:
        """The graph's clock, in milliseconds."""
        ...


class Entities(Protocol):
    """Writes entities. Every call is one transaction of local work, and answers item by item, in order.

    Each change makes a new version with a later ``valid_from``; without a change there is no new version. A new version has no
    embedding, and none of the old one's vectors is found any more.
    """

    async def create_entities(self, project: str, entities: Sequence[NewEntity]) -> list[EntityChange]:
        """Create what has a new name; add the new observations to what exists, also twice in one call.

        An existing entity keeps its type. An archived one stays archived: its name is given to a new entity, with a new uid.
        """
        ...

    async def add_observations(self, project: str, additions: Sequence[Observations]) -> list[EntityChange]:
        """Add what an entity does not have yet and delete what is replaced, in one version.

        An unknown entity, or a replaced observation that it does not have, is that item's ``problem``: nothing of it is written.
        """
        ...

    async def delete_observations(
        self, project: str, deletions: Sequence[Observations]
    ) -> list[EntityChange]:
        """Delete those of ``contents`` that are there. An unknown entity is that item's ``problem``."""
        ...

    async def delete_entities(self, project: str, names: Sequence[str]) -> list[bool]:
        """Archive entities and their current relations; answers which of them were there."""
        ...

    async def merge_entities(self, project: str, source: str, into: str, *, dry_run: bool = False) -> Merge:
        """Move observations and current relations, and archive the source; ``NotFound`` if one is missing, ``InvalidInput`` if they are one.

        A relation that moves is as old as it was; one between the two is archived. One that ``into`` has already is merged with it: what it lacks comes from the source's.
        The numbers are observations that ``into`` did not have, and relations that went over, merged ones too.
        """
        ...

    async def purge(self, project: str, older_than: int) -> Purge:
        """Delete archived versions whose ``valid_to`` is more than so many milliseconds ago."""
        ...


class Relations(Protocol):
    """Writes relations. They connect entities, not versions: a new version of an end changes no relation."""

    async def create_relations(self, project: str, relations: Sequence[NewRelation]) -> list[RelationChange]:
        """Create relations, or state existing ones again: what is given replaces what was, and the age (since ``updated_at``) begins
        again. An archived relation is not inherited from.
        """
        ...

    async def update_relation(self, project: str, relation: NewRelation) -> Relation:
        """Write a new version of an existing relation; ``NotFound`` if there is none."""
        ...

    async def delete_relations(self, project: str, keys: Sequence[RelationKey]) -> list[bool]: ...


class Reading(Protocol):
    """Reads a project, now or at a time. Lists are in order of names (relations: of from, to, type), and begin behind ``after``.

    Names are in the order of their code points. At the very millisecond of a change its new version is read.
    """

    async def get_entities(self, project: str, names: Sequence[str]) -> list[Entity]:
        """The current versions of those that exist."""
        ...

    async def get_by_uid(self, uids: Sequence[str]) -> list[Entity]:
        """The current versions of those that are not archived, in the order asked for."""
        ...

    async def list_entities(
        self, project: str, limit: int, *, after: str | None = None, at: int | None = None
    ) -> list[Entity]: ...

    async def relations_of(
        self, project: str, names: Sequence[str], *, at: int | None = None, limit: int = 1000
    ) -> list[Relation]:
        """Relations that have one of the names at either end, each once."""
        ...

    async def get_relation(self, project: str, key: RelationKey) -> Relation | None: ...

    async def entity_history(self, project: str, name: str) -> list[Entity]:
        """All versions, the oldest first; if the name was given again, those of all entities that had it."""
        ...

    async def relation_history(self, project: str, key: RelationKey) -> list[Relation]: ...

    async def size(self, project: str) -> Size: ...


class Embeddings(Protocol):
    """Keeps vectors by (model, hash of the text), and knows which entities lack them.

    Of a model that is not known, reading finds nothing; ``store_embeddings`` and ``without_embeddings`` raise ``InvalidInput``.
    """

    async def use_model(self, model: Model) -> None:
        """Make the model known, so that entities without its vectors are found. With another dimension it is another model."""

    async def current(self, versions: Sequence[Version]) -> list[Entity | None]:
        """The entities of which these versions are current, in order; None for what has moved on or is archived."""
        ...

    async def known_vectors(self, model: Model, hashes: Sequence[bytes]) -> Mapping[bytes, Vector]:
        """Those of texts with these hashes; at least of each entity's latest embedding, also while its newer version has none."""
        ...

    async def store_embeddings(self, embeddings: Sequence[Embedding]) -> list[bool]:
        """Replace the entities' vectors of that model. False, and nothing written, if the version is not current any more
        or a newer fence wrote this version already. ``InvalidInput``, and nothing written, if a vector is not what a :data:`Vector` must be.
        """
        ...

    async def without_embeddings(
        self, model: Model, limit: int = 10, *, project: str | None = None, after: Entity | None = None
    ) -> list[Entity]:
        """Current entities without this model's embedding, those first that have waited longest; by an index of only those.

        The order is that of ``valid_from``, then of ``uid``; a page begins behind ``after``, the last one of the page before,
        also if that has its embedding or a newer version by now.

        Entities that were there before the model was known are found too: what is left to mark is marked here, in bounded steps.
        Fewer than ``limit`` means that there are no more.
        """
        ...

    async def coverage(self, project: str, model: Model) -> Coverage: ...

    async def embedding_of(self, uid: str, model: Model) -> Embedding | None:
        """The vectors of the current version; None if it has none, or is archived."""
        ...


class Search(Protocol):
    """Finds current entities; types and project are applied before the limit."""

    async def keyword(
        self, project: str, words: Sequence[str], limit: int, *, types: Sequence[str] | None = None
    ) -> list[KeywordHit]:
        """Entities that have any of the words in name, type or observations, the best first.

        Words are text, whatever characters they have. What was written before the call is found. The score is the BM25 score
        divided by the most it could be for these words.
        """
        ...

    async def nearest(
        self, project: str, model: Model, vector: Vector, limit: int, *, types: Sequence[str] | None = None
    ) -> list[VectorHit]:
        """Entities by the cosine of their best vector, the nearest first; each once, however many of its vectors are near."""
        ...

    async def compare(
        self, project: str, model: Model, vector: Vector, uids: Sequence[str]
    ) -> list[VectorHit]:
        """Those of these entities that have current vectors of the model, by the cosine of their best one, the nearest first."""
        ...


class Archive(Protocol):
    """Everything of a project, history too, as records; and back."""

    def export(self, project: str) -> AsyncIterator[ArchiveRecord]: ...

    async def restore(self, project: str, records: Sequence[ArchiveRecord]) -> int:
        """Write records as they are, in one transaction; answers how many were new. What is there already stays.

        ``InvalidInput``, and nothing written, if an end of a relation is neither there nor among the records, if another entity has
        a current one's name, or another project its uid.
        """
        ...


class Graph(Lifecycle, Entities, Relations, Reading, Embeddings, Search, Archive, Protocol):
    """A place where the knowledge graphs of several projects live.

    Input has been checked (:mod:`unstuck_memory.checks`). One event loop uses a graph, any number of its tasks at once. At most four
    writes of a process are under way; the others wait their turn outside of any transaction. A server that cannot be reached, or a file
    that is locked for too long, raises ``GraphUnavailable``.
    """
