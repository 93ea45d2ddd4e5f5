"""Search by vectors: current entities, each by its best vector, filtered before the limit."""

import uuid
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity
from unstuck_memory.vectors import Embedding, Model

from support_memory.conformance.given import (
    MODEL,
    changed,
    chunk,
    created,
    embed,
    embedding,
    more,
    names,
    new,
    vector,
)

MANY, EACH = 75, 30  # entities, and vectors of each: together more than anybody compares exactly


async def _filled(
    graph: Graph,
    project: str,
    kind: str,
    count: int,
    cosine: float,
    each: int = 1,
    *,
    sign: int = 1,
    model: Model = MODEL,
) -> list[Entity]:
    """So many of a kind, with so many vectors at this cosine each; ``sign`` is that of their other number."""
    made = await created(graph, project, *(new(f"{kind} {number}", kind=kind) for number in range(count)))
    vectors = [sign * vector(sign * cosine, axis=1 + number % 11) for number in range(each)]
    assert all(await graph.store_embeddings([embedding(one, *vectors, model=model) for one in made]))
    return made


async def test_the_nearest_come_first_with_their_cosine(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    cosines = [0.9, -1.0, 0.3, 1.0, 0.0, -0.4]
    entities = await created(graph, project, *(f"at {cosine}" for cosine in cosines))
    for number, (entity, cosine) in enumerate(zip(entities, cosines, strict=True)):
        await embed(graph, entity, vector(cosine, axis=1 + number))

    hits = await graph.nearest(project, MODEL, vector(), 10)
    by_uid = {entity.uid: cosine for entity, cosine in zip(entities, cosines, strict=True)}
    assert [by_uid[hit.uid] for hit in hits] == sorted(cosines, reverse=True)
    assert [hit.score for hit in hits] == pytest.approx(sorted(cosines, reverse=True), abs=1e-4)
    assert await graph.nearest(project, MODEL, vector(), 2) == hits[:2]


async def test_an_entity_scores_by_its_best_vector_and_appears_once(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    ann, bob = await created(graph, project, new("Ann", "a", "b", "c"), new("Bob", "a"))
    await embed(graph, ann, vector(0.1), vector(0.5), vector(0.8), vector(0.7))
    await embed(graph, bob, vector(0.6), vector(0.2))

    first, second = await graph.nearest(project, MODEL, vector(), 10)
    assert (first.uid, first.observation) == (ann.uid, 1)
    assert (second.uid, second.observation) == (bob.uid, None)
    assert (first.score, second.score) == pytest.approx((0.8, 0.6), abs=1e-4)


async def test_one_entity_with_many_near_vectors_leaves_room_for_others(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    [hub] = await created(graph, project, "hub")
    cosines = np.random.default_rng(3).uniform(0.9, 0.99, MANY * EACH)
    near = [vector(float(cosine), axis=1 + number % 11) for number, cosine in enumerate(cosines)]
    await embed(graph, hub, vector(0.9), *near)
    others = await _filled(graph, project, "other", 3, -0.2)

    hits = await graph.nearest(project, MODEL, vector(), 4)
    assert hits[0].uid == hub.uid
    assert hits[0].observation == int(np.argmax(cosines))
    assert {hit.uid for hit in hits[1:]} == {one.uid for one in others}


async def test_types_and_project_are_applied_before_the_limit(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    other = f"{project}-other"
    await _filled(graph, project, "near", MANY, 0.9, EACH)
    await _filled(graph, other, "wanted", MANY, 0.95, EACH)
    far = await _filled(graph, project, "wanted", 3, -0.5)
    middle = await _filled(graph, project, "also", 2, 0.1)

    hits = await graph.nearest(project, MODEL, vector(), 3, types=["wanted"])
    assert {hit.uid for hit in hits} == {one.uid for one in far}
    hits = await graph.nearest(project, MODEL, vector(), 4, types=["wanted", "also", "unknown"])
    assert {hit.uid for hit in hits[:2]} == {one.uid for one in middle}
    assert len(hits) == 4
    assert await graph.nearest(project, MODEL, vector(), 3, types=["Wanted"]) == []
    assert len(await graph.nearest(project, MODEL, vector(), MANY + 10)) == MANY + 5


async def test_they_are_applied_before_the_limit_among_thousands_too(graph: Graph, project: str) -> None:
    """There are nearer ones in another project, of another type, archived and outdated."""
    model = Model(f"model-{uuid.uuid4().hex[:12]}", 12)
    await graph.use_model(model)
    near = await _filled(graph, project, "near", MANY, 0.8, EACH, model=model)
    await _filled(graph, f"{project}-other", "near", MANY, 0.9, EACH, model=model)
    nearer = await _filled(graph, project, "nearer", 5, 0.95, EACH, sign=-1, model=model)
    gone = await _filled(graph, project, "gone", 5, 0.99, EACH, sign=-1, model=model)
    await graph.delete_entities(project, names(gone[:3]))
    for entity in gone[3:]:
        await changed(graph, project, entity.name, "moved on")

    hits = await graph.nearest(project, model, vector(), 7, types=["near", "gone"])
    assert {hit.uid for hit in hits} <= {one.uid for one in near}
    assert len(hits) == 7
    hits = await graph.nearest(project, model, vector(), 7)
    assert {hit.uid for hit in hits[:5]} == {one.uid for one in nearer}
    assert {hit.uid for hit in hits[5:]} <= {one.uid for one in near}
    assert len(hits) == 7
    assert len(await graph.nearest(project, model, vector(), MANY + 10)) == MANY + 5


async def test_the_ten_found_among_thousands_are_nearly_always_the_nearest(
    graph: Graph, project: str
) -> None:
    model = Model("sixty", 60)
    await graph.use_model(model)
    rng = np.random.default_rng(11)
    entities = await created(graph, project, *(f"thing {number}" for number in range(100)))
    centres = rng.standard_normal((40, 60))
    vectors = centres[rng.integers(40, size=2500)] + 0.6 * rng.standard_normal((2500, 60))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    of_each = vectors.reshape(100, 25, 60)
    stored = [embedding(one, *own, model=model) for one, own in zip(entities, of_each, strict=True)]
    assert all(await graph.store_embeddings(stored))

    found = 0
    for query in vectors[::125] + 0.03 * rng.standard_normal((20, 60)):
        asked = (query / np.linalg.norm(query)).astype(np.float32)
        best = (of_each @ asked).max(axis=1)
        right = {entities[number].uid: best[number] for number in np.argsort(-best)[:10]}
        hits = await graph.nearest(project, model, asked, 10)
        assert len(hits) == 10
        found += sum(hit.uid in right and abs(hit.score - right[hit.uid]) < 1e-4 for hit in hits)
    assert found / 200 >= 0.9


async def test_what_is_archived_or_outdated_is_never_found(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    kept, outdated, gone = await created(graph, project, "kept", new("outdated", "a"), "gone")
    for entity in (kept, outdated, gone):
        await embed(graph, entity, vector(0.9), vector(0.8))
    assert len(await graph.nearest(project, MODEL, vector(), 10)) == 3

    later = await changed(graph, project, "outdated", "b")
    assert {hit.uid for hit in await graph.nearest(project, MODEL, vector(), 10)} == {kept.uid, gone.uid}
    await graph.delete_entities(project, ["gone"])
    assert [hit.uid for hit in await graph.nearest(project, MODEL, vector(), 10)] == [kept.uid]
    await embed(graph, later, vector(0.2))
    assert [hit.uid for hit in await graph.nearest(project, MODEL, vector(), 10)] == [kept.uid, later.uid]
    await graph.delete_observations(project, [more("outdated", "a")])
    assert [hit.uid for hit in await graph.nearest(project, MODEL, vector(), 10)] == [kept.uid]
    await graph.merge_entities(project, "kept", "outdated")
    assert await graph.nearest(project, MODEL, vector(), 10) == []


async def test_a_text_that_two_entities_have_is_found_by_those_that_still_have_it(
    graph: Graph, project: str
) -> None:
    await graph.use_model(MODEL)
    text = uuid.uuid4().hex
    [ann] = await created(graph, project, "Ann")
    [other] = await created(graph, f"{project}-other", "Ann")

    async def embedded(entity: Entity) -> bool:
        chunks = (chunk(vector(0.5), text), chunk(vector(0.2), f"{text} 0", 0))
        stored = Embedding(uid=entity.uid, version=entity.version, fence=1, model=MODEL, chunks=chunks)
        return await graph.store_embeddings([stored]) == [True]

    async def found() -> list[str]:
        hits = [await graph.nearest(place, MODEL, vector(), 5) for place in (project, f"{project}-other")]
        return [hit.uid for both in hits for hit in both]

    assert await embedded(ann)
    assert await embedded(other)
    assert await found() == [ann.uid, other.uid]
    later = await changed(graph, project, "Ann", "moved on")
    assert await found() == [other.uid]
    assert await embedded(later)
    await graph.delete_entities(f"{project}-other", ["Ann"])
    await graph.purge(f"{project}-other", 0)
    assert await found() == [ann.uid]
    await graph.delete_entities(project, ["Ann"])
    assert await found() == []


async def test_archived_vectors_take_no_room(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    near = await _filled(graph, project, "near", MANY, 0.9, EACH)
    far = await _filled(graph, project, "far", 3, -0.5)
    assert await graph.nearest(project, MODEL, vector(), 3) != []
    await graph.delete_entities(project, names(near))
    assert {hit.uid for hit in await graph.nearest(project, MODEL, vector(), 3)} == {one.uid for one in far}


async def test_what_anybody_just_wrote_is_found(
    graph: Graph, project: str, another: Callable[[], Awaitable[Graph]]
) -> None:
    """Each reads before the other writes, so that whatever it keeps in its memory is out of date."""
    await graph.use_model(MODEL)
    other = await another()
    [ann] = await created(graph, project, new("Ann", "a"))

    async def found(by: Graph, cosine: float = 1.0) -> list[float]:
        return [round(hit.score, 3) for hit in await by.nearest(project, MODEL, vector(cosine), 5)]

    assert await found(graph) == await found(other) == []
    await embed(graph, ann, vector(0.5))
    assert await found(graph) == await found(other) == [0.5]
    await embed(other, ann, vector(0.25), vector(0.125), fence=2)
    assert await found(graph) == await found(other) == [0.25]
    later = await changed(other, project, "Ann", "b")
    assert await found(graph) == await found(other) == []
    await embed(graph, later, vector(0.75))
    assert await found(other) == await found(graph) == [0.75]
    await other.delete_entities(project, ["Ann"])
    assert await found(graph) == await found(other) == []
