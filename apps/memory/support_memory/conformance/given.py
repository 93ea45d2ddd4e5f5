"""Short words for what the tests begin with, and what must hold of every graph at any time."""

import hashlib
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace
from unstuck_memory.archive_records import ArchiveRecord, EntityRecord, RelationRecord
from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity, NewEntity, NewRelation, Observations, Relation, RelationKey, Version
from unstuck_memory.vectors import Chunk, Embedding, Model, Vector

MODEL = Model("twelve", 12)  # neither a power of two nor a multiple of eight
HOUR = 3_600_000  # ms
FOREVER = 10**15  # later than all that happens
T = TypeVar("T", Entity, RelationRecord)


def new(name: str, *observations: str, kind: str = "thing", by: str | None = None) -> NewEntity:
    return NewEntity(name=name, entity_type=kind, observations=observations, changed_by=by)


def more(name: str, *contents: str, replaces: Sequence[str] = ()) -> Observations:
    return Observations(entity_name=name, contents=contents, replaces=tuple(replaces))


def related(from_: str, to: str, kind: str = "knows", **facts: Any) -> NewRelation:
    return NewRelation(from_=from_, to=to, relation_type=kind, **facts)


def key(from_: str, to: str, kind: str = "knows") -> RelationKey:
    return RelationKey(from_=from_, to=to, relation_type=kind)


async def created(graph: Graph, project: str, *entities: NewEntity | str) -> list[Entity]:
    """What is there after creating it; a name alone will do."""
    asked = [one if isinstance(one, NewEntity) else new(one) for one in entities]
    answers = await graph.create_entities(project, asked)
    return [answer.entity for answer in answers if answer.entity is not None]


async def one(graph: Graph, project: str, name: str) -> Entity:
    [entity] = await graph.get_entities(project, [name])
    return entity


async def connected(graph: Graph, project: str, *relations: NewRelation) -> list[Relation]:
    answers = await graph.create_relations(project, relations)
    assert [answer.problem for answer in answers] == [None] * len(relations)
    return [answer.relation for answer in answers if answer.relation is not None]


async def relation(graph: Graph, project: str, of: RelationKey) -> Relation:
    found = await graph.get_relation(project, of)
    assert found is not None, f"there is no {of}"
    return found


async def changed(graph: Graph, project: str, name: str, *contents: str) -> Entity:
    [answer] = await graph.add_observations(project, [more(name, *contents)])
    assert answer.changed, answer
    assert answer.entity is not None
    return answer.entity


def version(entity: Entity) -> Version:
    return Version(uid=entity.uid, version=entity.version)


def names(entities: Sequence[Entity]) -> list[str]:
    return [entity.name for entity in entities]


def vector(cosine: float = 1.0, *, axis: int = 1, dimension: int = MODEL.dimension) -> Vector:
    """A unit vector that has this cosine with ``vector()``; the rest of it points along an axis."""
    values = np.zeros(dimension, dtype=np.float32)
    values[0], values[axis] = cosine, math.sqrt(max(0.0, 1.0 - cosine * cosine))
    return values


def chunk(of: Vector, text: str, observation: int | None = None) -> Chunk:
    return Chunk(hash=digest(text), vector=of, observation=observation)


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def embedding(
    entity: Entity, whole: Vector, *observations: Vector, fence: int = 1, model: Model = MODEL
) -> Embedding:
    """One of the whole text and of some observations. Its texts are its own, as each has the entity's name."""
    chunks = [chunk(whole, f"{entity.uid} {whole.tobytes()!r}")]
    chunks += [chunk(of, f"{entity.uid} {of.tobytes()!r} {at}", at) for at, of in enumerate(observations)]
    return Embedding(uid=entity.uid, version=entity.version, fence=fence, model=model, chunks=tuple(chunks))


async def embed(graph: Graph, entity: Entity, whole: Vector, *observations: Vector, **facts: Any) -> None:
    """Store an embedding of a current version."""
    assert await graph.store_embeddings([embedding(entity, whole, *observations, **facts)]) == [True]


async def exported(graph: Graph, project: str) -> list[ArchiveRecord]:
    """All records, in an order that does not depend on the graph."""
    return sorted([record async for record in graph.export(project)], key=_place)


def _place(record: ArchiveRecord) -> tuple[str, str, int]:
    value = record.entity if isinstance(record, EntityRecord) else record
    return type(record).__name__, value.uid, value.version


def older(record: ArchiveRecord, by: int) -> ArchiveRecord:
    """The same at an earlier time: how stored data is aged."""
    return (
        EntityRecord(_earlier(record.entity, by))
        if isinstance(record, EntityRecord)
        else _earlier(record, by)
    )


def _earlier(value: T, by: int) -> T:
    times = {name: getattr(value, name) for name in ("created_at", "updated_at", "valid_from", "valid_to")}
    return replace(value, **{name: time - by for name, time in times.items() if time is not None})


async def coherent(graph: Graph, project: str) -> list[ArchiveRecord]:
    """Check what holds of every graph: whole histories, unique names and keys, relations with ends."""
    records = await exported(graph, project)
    entities = [record.entity for record in records if isinstance(record, EntityRecord)]
    relations = [record for record in records if isinstance(record, RelationRecord)]
    by_uid: dict[str, list[Entity | RelationRecord]] = {}
    by_name: dict[object, list[Entity | RelationRecord]] = {}
    for entity in entities:
        by_uid.setdefault(entity.uid, []).append(entity)
        by_name.setdefault(entity.name, []).append(entity)
    for edge in relations:
        by_uid.setdefault(edge.uid, []).append(edge)
        by_name.setdefault((edge.from_uid, edge.to_uid, edge.relation_type), []).append(edge)
    for versions in by_uid.values():
        numbers = [value.version for value in versions]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), versions
        assert len({value.created_at for value in versions}) == 1, versions
        assert all(value.valid_to is None or value.valid_from < value.valid_to for value in versions), (
            versions
        )
    for versions in by_name.values():
        versions.sort(key=lambda value: (value.valid_from, value.valid_to or FOREVER))
        for earlier, later in pairwise(versions):
            assert earlier.valid_to is not None, f"two are current: {earlier}, {later}"
            assert earlier.valid_to <= later.valid_from, f"they overlap: {earlier}, {later}"
            assert (
                earlier.uid != later.uid
                or earlier.valid_to == later.valid_from
                or isinstance(earlier, RelationRecord)
            ), f"a gap between {earlier} and {later}"
    current = {entity.uid for entity in entities if entity.valid_to is None}
    born = {entity.uid: entity.created_at for entity in entities}
    for edge in relations:
        ends = {edge.from_uid, edge.to_uid}
        assert ends <= born.keys(), f"an end is missing: {edge}"
        assert all(born[end] <= edge.valid_from for end in ends), f"it is older than an end: {edge}"
        assert edge.valid_to is not None or ends <= current, f"an end is archived: {edge}"
    return records
