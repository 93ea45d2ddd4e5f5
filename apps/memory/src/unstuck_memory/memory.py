"""Memory: the knowledge graph of one project, as every interface uses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec.structs import replace

from unstuck import UnstuckError
from unstuck_memory import archive, checks, lines, reference_file
from unstuck_memory.answers import DecayedGraph, EntitiesWritten, Imported, KnowledgeGraph, Merged
from unstuck_memory.decay import decay_info, decayed
from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.errors import InvalidInput, UnstuckMemoryError
from unstuck_memory.graph import Graph
from unstuck_memory.imports import import_archive, import_reference
from unstuck_memory.values import (
    Coverage,
    Entity,
    EntityChange,
    NewEntity,
    NewRelation,
    Observations,
    Purge,
    Relation,
    RelationChange,
    RelationKey,
    Size,
)
from unstuck_memory.vectors import Embedding, Model

DEFAULT_PROJECT = "default"
RELATIONS = 1000  # of an answer
PATIENCE = 5.0  # seconds that a write waits for the queue; a worker schedules what it did not take

logger = logging.getLogger("unstuck_memory")


class Jobs(Protocol):
    """The queue of embeddings, as far as a memory needs it."""

    @property
    def provider(self) -> Provider: ...

    async def schedule(self, entities: Sequence[Entity]) -> object:
        """See that each of these versions has its job. No provider is called."""
        ...


class Memory:
    """The entities and relations of one project.

    Every argument is checked before anything is written: ``InvalidInput`` names the field, its range and the next step. A write
    calls no provider; it answers when the graph has it and its embedding jobs are in the queue, or will be (``scheduled``).

    A project is there as soon as it has an entity. To read one that holds nothing raises ``InvalidInput``, because its name is most
    likely misspelt; the project ``default`` is always there, and so is one that ``may_be_empty``.
    """

    def __init__(self, graph: Graph, project: str, jobs: Jobs, *, may_be_empty: bool = False) -> None:
        self.project = checks.project(project)
        self._may_be_empty = may_be_empty or self.project == DEFAULT_PROJECT
        self._graph = graph
        self._jobs = jobs
        self._known_model: Model | None = None

    # Writing

    async def create_entities(self, entities: Sequence[NewEntity]) -> EntitiesWritten:
        """Create entities; one whose name is there already gets the observations that it does not have."""
        if not (checked := checks.entities(entities)):
            return EntitiesWritten(changes=())
        await self._check_room((item.name, item.observations, ()) for item in checked)
        return await self._written(await self._graph.create_entities(self.project, checked))

    async def add_observations(self, observations: Sequence[Observations]) -> EntitiesWritten:
        """Add observations, and delete those that they replace in the same version.

        An unknown entity is its item's ``problem``.
        """
        if not (checked := checks.additions(observations)):
            return EntitiesWritten(changes=())
        await self._check_room((item.entity_name, item.contents, item.replaces) for item in checked)
        return await self._written(await self._graph.add_observations(self.project, checked))

    async def delete_observations(self, deletions: Sequence[Observations]) -> EntitiesWritten:
        if not (checked := checks.deletions(deletions)):
            return EntitiesWritten(changes=())
        return await self._written(await self._graph.delete_observations(self.project, checked))

    async def delete_entities(self, names: Sequence[str]) -> dict[str, bool]:
        """Archive entities and their relations; answers which of them were there."""
        checked = checks.names("names", names)
        found = await self._graph.delete_entities(self.project, checked) if checked else []
        return dict(zip(checked, found, strict=True))

    async def merge_entities(self, source: str, into: str, *, dry_run: bool = False) -> Merged:
        """Move observations and relations, and archive the source; ``NotFound`` if one of them is missing."""
        source, into = checks.name("source", source), checks.name("into", into)
        if source == into:
            raise InvalidInput(f"into is {into!r}, as source is: it must be another entity; give two names")
        both = await self._graph.get_entities(self.project, [source, into])
        checks.room(f"entity {into!r}", len({text for entity in both for text in entity.observations}))
        merge = await self._graph.merge_entities(self.project, source, into, dry_run=dry_run)
        changed = [] if dry_run else await self._graph.get_entities(self.project, [into])
        return Merged(merge=merge, scheduled=await self.schedule(changed))

    async def create_relations(self, relations: Sequence[NewRelation]) -> list[RelationChange]:
        """Create relations, or state them again. An unknown end is its item's ``problem``; the others are written."""
        checked = checks.relations(relations)
        return await self._graph.create_relations(self.project, checked) if checked else []

    async def update_relation(self, relation: NewRelation) -> Relation:
        """State an existing relation again; what is not given stays. ``NotFound`` if there is none."""
        return await self._graph.update_relation(self.project, checks.relation("relation", relation))

    async def delete_relations(self, relations: Sequence[RelationKey]) -> list[bool]:
        """Archive relations; answers which of them were there, in order."""
        checked = checks.keys(relations)
        return await self._graph.delete_relations(self.project, checked) if checked else []

    async def purge(self, older_than: int) -> Purge:
        """Delete for good what was archived more than so many milliseconds ago."""
        purged = await self._graph.purge(self.project, checks.older_than(older_than))
        await self._found(purged.entities + purged.relations)
        return purged

    # Reading

    async def read_graph(
        self, *, limit: int = 100, after: str | None = None, relations: int = RELATIONS
    ) -> KnowledgeGraph:
        """A page of entities in order of their names, behind ``after``, and so many of their relations."""
        return await self._page(limit, after, relations=relations)

    async def open_nodes(self, names: Sequence[str], *, relations: int = RELATIONS) -> KnowledgeGraph:
        """The entities with these names, and so many of the relations that have one of them at either end."""
        found = await self._graph.get_entities(self.project, checks.names("names", names))
        return await self._with_relations(found, relations=relations)

    async def get_entity(self, name: str) -> Entity | None:
        found = await self._graph.get_entities(self.project, [checks.name("name", name)])
        return found[0] if await self._found(found) else None

    async def get_relation(self, from_: str, to: str, relation_type: str) -> Relation | None:
        found = await self._graph.get_relation(self.project, checks.key(from_, to, relation_type))
        return found if await self._found(found) else None

    async def get_entity_history(self, name: str) -> list[Entity]:
        """All versions, the oldest first."""
        found = await self._graph.entity_history(self.project, checks.name("name", name))
        return found if await self._found(found) else []

    async def get_relation_history(self, from_: str, to: str, relation_type: str) -> list[Relation]:
        """All versions, the oldest first."""
        found = await self._graph.relation_history(self.project, checks.key(from_, to, relation_type))
        return found if await self._found(found) else []

    async def get_graph_at_time(
        self, timestamp: int, *, limit: int = 100, after: str | None = None, relations: int = RELATIONS
    ) -> KnowledgeGraph:
        """A page of what was current at a time, in milliseconds since 1970."""
        at = checks.timestamp("timestamp", timestamp)
        return await self._page(limit, after, at=at, relations=relations)

    async def get_decayed_graph(
        self,
        *,
        reference_time: int | None = None,
        decay_factor: float | None = None,
        limit: int = 100,
        after: str | None = None,
        relations: int = RELATIONS,
    ) -> DecayedGraph:
        """A page of the current graph with the confidence that is left at a time; without one, now."""
        factor = None if decay_factor is None else checks.decay_factor(decay_factor)
        if reference_time is not None:
            reference_time = checks.timestamp("referenceTime", reference_time)
        graph = await self._page(limit, after, relations=relations)
        info = decay_info(reference_time or await self._graph.now(), factor)
        left = tuple(decayed(relation, info) for relation in graph.relations)
        return DecayedGraph(graph=replace(graph, relations=left), decay_info=info)

    async def size(self) -> Size:
        size = await self._graph.size(self.project)
        await self._found(size.entities + size.relations + size.archived)
        return size

    # Embeddings

    async def get_entity_embedding(self, name: str) -> Embedding | None:
        """The vectors of an entity's current version; None if it has none yet, or there is no such entity."""
        entity = await self.get_entity(name)
        return None if entity is None else await self._graph.embedding_of(entity.uid, await self._model())

    async def get_entities_without_embeddings(self, limit: int = 10) -> list[Entity]:
        """Current entities that the model has not embedded, those first that have waited longest."""
        limit = checks.limit(limit)
        found = await self._graph.without_embeddings(await self._model(), limit, project=self.project)
        return found if await self._found(found) else []

    async def coverage(self) -> Coverage:
        """How many entities there are, and how many the model has embedded."""
        coverage = await self._graph.coverage(self.project, await self._model())
        await self._found(coverage.entities)
        return coverage

    async def schedule(self, entities: Sequence[Entity]) -> bool:
        """See that these versions have their jobs. False if the queue could not be reached: a worker schedules them later."""
        if not entities:
            return True
        try:
            async with asyncio.timeout(PATIENCE):
                await self._jobs.schedule(entities)
        except (UnstuckError, UnstuckMemoryError, OSError) as error:
            logger.warning(
                "%d new versions of entities have no embedding job yet, a worker of the memory schedules them later: %s",
                len(entities),
                str(error) or f"no answer within {PATIENCE:g} seconds",
            )
            return False
        return True

    # Archives

    async def export(self, form: Literal["archive", "reference"] = "archive") -> AsyncIterator[bytes]:
        """The lines of an archive with all versions, or of a file for the reference memory server with the current ones."""
        await self.size()  # an unknown project is refused before the first line
        write = archive.lines if form == "archive" else reference_file.lines
        async for line in write(self._graph.export(self.project)):
            yield line

    async def export_file(self, path: Path, form: Literal["archive", "reference"] = "archive") -> int:
        """Write the lines of :meth:`export` to a file; answers how many. The file is there when it is complete."""
        return await lines.write(path, self.export(form))

    async def import_file(self, path: Path) -> Imported:
        """Read an archive, or a file of the reference memory server, into this project. What is there already stays.

        An archive that is damaged or of a newer version raises ``InvalidInput``, and nothing of it is written.
        """
        if await asyncio.to_thread(archive.is_archive, path):
            return await import_archive(path, self._graph, self.project, self.schedule)
        return await import_reference(path, self.create_entities, self.create_relations)

    async def _page(
        self, limit: int, after: str | None, at: int | None = None, *, relations: int
    ) -> KnowledgeGraph:
        limit = checks.limit(limit)
        behind = None if after is None else checks.name("after", after)
        found = await self._graph.list_entities(self.project, limit + 1, after=behind, at=at)
        page = await self._with_relations(found[:limit], at, relations=relations)
        return replace(page, next_after=found[limit - 1].name if len(found) > limit else None)

    async def _with_relations(
        self, entities: Sequence[Entity], at: int | None = None, *, relations: int
    ) -> KnowledgeGraph:
        checks.whole("relations", relations, 0, 1_000_000, "leave it out for 1000")
        found: list[Relation] = []
        if await self._found(entities):
            names = [entity.name for entity in entities]
            found = await self._graph.relations_of(self.project, names, at=at, limit=relations + 1)
        return KnowledgeGraph(
            entities=tuple(entities),
            relations=tuple(found[:relations]),
            more_relations=len(found) > relations,
        )

    async def _found(self, found: object) -> bool:
        """Whether anything was found. If not because the project is unknown, it is refused."""
        if not found and not self._may_be_empty:
            size = await self._graph.size(self.project)
            if not size.entities + size.relations + size.archived:
                raise InvalidInput(
                    f"project {self.project!r} is unknown, it holds nothing: a project with at least one entity is allowed; "
                    "correct its name, or create an entity in it"
                )
        return bool(found)

    async def _check_room(self, items: Iterable[tuple[str, Sequence[str], Sequence[str]]]) -> None:
        """Refuse what would give an entity too many observations, together with those that it has."""
        wanted: dict[str, dict[str, bool]] = {}
        for name, contents, replaces in items:
            wanted.setdefault(name, {}).update(dict.fromkeys(replaces, False) | dict.fromkeys(contents, True))
        has: Mapping[str, Sequence[str]] = {
            entity.name: entity.observations
            for entity in await self._graph.get_entities(self.project, list(wanted))
        }
        for name, observations in wanted.items():
            had = has.get(name, ())
            count = sum((dict.fromkeys(had, True) | observations).values())
            # Two processes may have added the last ones together: what adds none is allowed.
            if count > len(had):
                checks.room(f"entity {name!r}", count)

    async def _written(self, changes: Sequence[EntityChange]) -> EntitiesWritten:
        new = {
            (change.entity.uid, change.entity.version): change.entity
            for change in changes
            if change.entity is not None and (change.created or change.changed)
        }
        return EntitiesWritten(changes=tuple(changes), scheduled=await self.schedule(list(new.values())))

    async def _model(self) -> Model:
        if self._known_model is None:
            model = await self._jobs.provider.model()
            await self._graph.use_model(model)
            self._known_model = model
        return self._known_model
