"""Vectors are kept for current versions alone, by model and by the text's hash, and only if they are right."""

import uuid

import numpy as np
import pytest
from unstuck_memory.errors import InvalidInput
from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity, Version
from unstuck_memory.vectors import Embedding, Model, Vector

from support_memory.conformance.given import (
    MODEL,
    changed,
    chunk,
    created,
    digest,
    embed,
    embedding,
    new,
    vector,
    version,
)


async def _entity(graph: Graph, project: str, name: str = "Ann") -> Entity:
    await graph.use_model(MODEL)
    [entity] = await created(graph, project, new(name, "sings", "cooks"))
    return entity


async def _first(graph: Graph, entity: Entity, model: Model = MODEL) -> float | None:
    """What identifies an embedding in these tests: the first number of its first vector."""
    found = await graph.embedding_of(entity.uid, model)
    return None if found is None else round(float(found.chunks[0].vector[0]), 6)


def _other_model(dimension: int = 12) -> Model:
    return Model(f"model-{uuid.uuid4().hex[:12]}", dimension)


async def test_an_embedding_comes_back_as_it_was_stored(graph: Graph, project: str) -> None:
    entity = await _entity(graph, project)
    rough = np.random.default_rng(7).standard_normal(12).astype(np.float32)
    stored = embedding(entity, rough / np.linalg.norm(rough), vector(0.25), vector(-1.0), fence=3)
    assert await graph.store_embeddings([stored]) == [True]

    found = await graph.embedding_of(entity.uid, MODEL)
    assert found is not None
    assert (found.uid, found.version, found.fence, found.model) == (entity.uid, 1, 3, MODEL)
    assert [(one.hash, one.observation) for one in found.chunks] == [
        (one.hash, one.observation) for one in stored.chunks
    ]
    for one, other in zip(found.chunks, stored.chunks, strict=True):
        assert one.vector.dtype == np.float32
        np.testing.assert_array_equal(one.vector, other.vector)


@pytest.mark.accepts("EMB-042")
async def test_an_entity_without_vectors_has_no_embedding(graph: Graph, project: str) -> None:
    entity = await _entity(graph, project)
    assert await graph.embedding_of(entity.uid, MODEL) is None
    assert await graph.embedding_of("unknown", MODEL) is None


async def test_many_are_stored_in_one_call_and_answered_each(graph: Graph, project: str) -> None:
    ann = await _entity(graph, project)
    await changed(graph, project, "Ann", "moved on")
    [gone, bob, cid] = await created(graph, project, "gone", "Bob", "Cid")
    await graph.delete_entities(project, ["gone"])
    unknown = Embedding(uid="unknown", version=1, fence=1, model=MODEL, chunks=(chunk(vector(), "x"),))

    answers = await graph.store_embeddings(
        [
            embedding(bob, vector(0.1)),
            embedding(ann, vector(0.2)),
            embedding(gone, vector(0.3)),
            unknown,
            embedding(cid, vector(0.4)),
        ]
    )
    assert answers == [True, False, False, False, True]
    assert [await _first(graph, one) for one in (bob, ann, gone, cid)] == [0.1, None, None, 0.4]


async def test_a_new_version_has_no_embedding_and_the_old_ones_is_refused(graph: Graph, project: str) -> None:
    first = await _entity(graph, project)
    await embed(graph, first, vector(), fence=5)
    second = await changed(graph, project, "Ann", "moved on")

    assert await graph.embedding_of(first.uid, MODEL) is None
    assert await graph.store_embeddings([embedding(first, vector(0.5), fence=6)]) == [False]
    assert await graph.embedding_of(first.uid, MODEL) is None
    await embed(graph, second, vector(0.5), fence=1)  # of another job, whose fences begin by themselves
    found = await graph.embedding_of(first.uid, MODEL)
    assert found is not None
    assert (found.version, found.fence) == (2, 1)


async def test_an_older_fence_replaces_nothing(graph: Graph, project: str) -> None:
    entity = await _entity(graph, project)
    await embed(graph, entity, vector(0.5), vector(0.1), fence=5)

    assert await graph.store_embeddings([embedding(entity, vector(0.4), fence=4)]) == [False]
    assert await _first(graph, entity) == 0.5
    assert await graph.store_embeddings([embedding(entity, vector(0.6), fence=5)]) == [True]
    assert await _first(graph, entity) == 0.6
    assert await graph.store_embeddings([embedding(entity, vector(0.7), fence=6)]) == [True]
    found = await graph.embedding_of(entity.uid, MODEL)
    assert found is not None
    assert (found.fence, len(found.chunks)) == (6, 1), "it replaces all vectors of that model"
    assert [hit.observation for hit in await graph.nearest(project, MODEL, vector(), 5)] == [None]


def _refused() -> dict[str, Vector]:
    wrong = {number: vector() for number in (np.nan, np.inf)}
    for number, values in wrong.items():
        values[3] = number
    return {
        "NaN": wrong[np.nan],
        "infinite": wrong[np.inf],
        "zero": np.zeros(12, dtype=np.float32),
        "too long": vector() * np.float32(1.01),
        "too short": vector() * np.float32(0.99),
        "a dimension too many": vector(dimension=13),
        "a dimension too few": vector(dimension=11),
        "empty": np.zeros(0, dtype=np.float32),
        "of two axes": vector().reshape(1, 12),
        "of double precision": vector().astype(np.float64),
    }


@pytest.mark.parametrize("what", _refused())
async def test_a_wrong_vector_is_refused_and_nothing_written(graph: Graph, project: str, what: str) -> None:
    ann = await _entity(graph, project)
    bob = await _entity(graph, project, "Bob")
    good = embedding(ann, vector(), vector(0.5))
    with pytest.raises(InvalidInput):
        await graph.store_embeddings([good, embedding(bob, vector(), vector(0.5), _refused()[what])])

    assert await graph.embedding_of(ann.uid, MODEL) is None
    assert await graph.embedding_of(bob.uid, MODEL) is None
    assert await graph.nearest(project, MODEL, vector(), 5) == []
    assert len(await graph.without_embeddings(MODEL, 5, project=project)) == 2


async def test_a_vector_is_as_long_as_a_float_can_represent(graph: Graph, project: str) -> None:
    """Models normalize in single precision, some in half: an error of a ten-thousandth is none."""
    entity = await _entity(graph, project)
    await embed(graph, entity, vector() * np.float32(1.00001), vector(0.3) * np.float32(0.99999))


async def test_a_model_that_is_not_known_has_no_vectors_and_gets_none(graph: Graph, project: str) -> None:
    entity = await _entity(graph, project)
    unknown = _other_model()

    assert await graph.nearest(project, unknown, vector(), 5) == []
    assert await graph.known_vectors(unknown, [digest("x")]) == {}
    assert await graph.embedding_of(entity.uid, unknown) is None
    coverage = await graph.coverage(project, unknown)
    assert (coverage.entities, coverage.embedded) == (1, 0)
    with pytest.raises(InvalidInput):
        await graph.store_embeddings([embedding(entity, vector(), model=unknown)])
    with pytest.raises(InvalidInput):
        await graph.without_embeddings(unknown)


async def test_a_model_of_another_dimension_is_another_model(graph: Graph, project: str) -> None:
    """As when another server answers for the same name."""
    model = _other_model()
    wider = Model(model.name, 16)
    entity = await _entity(graph, project)
    await graph.use_model(model)
    await graph.use_model(model)
    await embed(graph, entity, vector(0.5), model=model)
    with pytest.raises(InvalidInput, match="16"):
        await graph.store_embeddings([embedding(entity, vector(dimension=16), model=wider)])

    await graph.use_model(wider)
    assert await graph.embedding_of(entity.uid, wider) is None
    assert await graph.without_embeddings(wider, 5, project=project) == [entity]
    assert (await graph.coverage(project, wider)).embedded == 0
    await embed(graph, entity, vector(0.25, dimension=16), model=wider)
    for one, cosine in ((model, 0.5), (wider, 0.25)):
        [hit] = await graph.nearest(project, one, vector(dimension=one.dimension), 5)
        assert hit.score == pytest.approx(cosine, abs=1e-4)
        assert (await graph.coverage(project, one)).embedded == 1
    with pytest.raises(InvalidInput):
        await graph.store_embeddings([embedding(entity, vector(dimension=16), model=model)])


async def test_models_never_mix(graph: Graph, project: str) -> None:
    """Not even for the same text."""
    entity = await _entity(graph, project)
    same, wider = _other_model(), _other_model(16)
    text = uuid.uuid4().hex
    for model in (same, wider):
        await graph.use_model(model)

    async def embedded(model: Model, cosine: float, fence: int) -> None:
        chunks = (chunk(vector(cosine, dimension=model.dimension), text),)
        stored = Embedding(uid=entity.uid, version=1, fence=fence, model=model, chunks=chunks)
        assert await graph.store_embeddings([stored]) == [True]

    await embedded(MODEL, 0.1, 9)
    for model in (same, wider):
        assert await graph.embedding_of(entity.uid, model) is None
        assert await graph.nearest(project, model, vector(dimension=model.dimension), 5) == []
        assert await graph.known_vectors(model, [digest(text)]) == {}
        assert (await graph.coverage(project, model)).embedded == 0
    await embedded(same, 0.2, 1)
    await embedded(wider, 0.3, 1)
    for model, cosine in ((MODEL, 0.1), (same, 0.2), (wider, 0.3)):
        assert await _first(graph, entity, model) == cosine
        [hit] = await graph.nearest(project, model, vector(dimension=model.dimension), 5)
        assert hit.score == pytest.approx(cosine, abs=1e-4)
        known = await graph.known_vectors(model, [digest(text)])
        np.testing.assert_array_equal(known[digest(text)], vector(cosine, dimension=model.dimension))


async def test_vectors_are_known_by_the_hash_of_their_text(graph: Graph, project: str) -> None:
    entity = await _entity(graph, project)
    mine = uuid.uuid4().hex
    chunks = (
        chunk(vector(0.1), mine),
        chunk(vector(0.2), f"{mine} 0", 0),
        chunk(vector(0.3), f"{mine} 1", 1),
    )
    stored = Embedding(uid=entity.uid, version=1, fence=1, model=MODEL, chunks=chunks)
    assert await graph.store_embeddings([stored]) == [True]
    asked = [one.hash for one in chunks]

    known = await graph.known_vectors(MODEL, [*asked, digest(f"{mine} unknown"), asked[0]])
    assert set(known) == set(asked)
    assert known[asked[1]].dtype == np.float32
    np.testing.assert_array_equal(known[asked[1]], vector(0.2))
    assert await graph.known_vectors(MODEL, []) == {}
    await changed(graph, project, "Ann", "moved on")
    await changed(graph, project, "Ann", "and on")
    assert set(await graph.known_vectors(MODEL, asked)) == set(asked), "most of the text is what it was"


async def test_a_text_may_stand_twice_in_one_embedding(graph: Graph, project: str) -> None:
    entity = await _entity(graph, project)
    chunks = (chunk(vector(0.1), "whole"), chunk(vector(0.2), "same", 0), chunk(vector(0.2), "same", 1))
    stored = Embedding(uid=entity.uid, version=1, fence=1, model=MODEL, chunks=chunks)
    assert await graph.store_embeddings([stored]) == [True]
    found = await graph.embedding_of(entity.uid, MODEL)
    assert found is not None
    assert [one.observation for one in found.chunks] == [None, 0, 1]


async def test_current_answers_what_has_not_moved_on(graph: Graph, project: str) -> None:
    ann = await _entity(graph, project)
    [bob, gone] = await created(graph, project, "Bob", "gone")
    later = await changed(graph, project, "Ann", "moved on")
    await graph.delete_entities(project, ["gone"])

    asked = [version(bob), version(ann), version(gone), version(later), Version(uid="unknown", version=1)]
    asked += [Version(uid=bob.uid, version=2), version(bob)]
    assert await graph.current(asked) == [bob, None, None, later, None, None, bob]
