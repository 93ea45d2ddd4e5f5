"""Search by vectors: current entities, each by its best vector, filtered before the limit."""

from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity

from support_memory.conformance.given import MODEL, changed, created, embed, embedding, more, new, vector

MANY = 600  # more than are looked at closely


async def _filled(graph: Graph, project: str, kind: str, count: int, cosine: float) -> list[Entity]:
    """So many of a kind, all at this cosine."""
    made: list[Entity] = []
    for start in range(0, count, 100):
        asked = [new(f"{kind} {number}", kind=kind) for number in range(start, min(count, start + 100))]
        made += await created(graph, project, *asked)
    stored = await graph.store_embeddings([embedding(one, vector(cosine)) for one in made])
    assert all(stored)
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
    [hub] = await created(graph, project, new("hub"))
    rng = np.random.default_rng(3)
    near = [
        vector(float(cosine), axis=1 + number % 11)
        for number, cosine in enumerate(rng.uniform(0.9, 0.99, MANY))
    ]
    await embed(graph, hub, vector(0.9), *near)
    others = await _filled(graph, project, "other", 3, -0.2)

    hits = await graph.nearest(project, MODEL, vector(), 4)
    assert hits[0].uid == hub.uid
    assert {hit.uid for hit in hits[1:]} == {one.uid for one in others}


async def test_types_and_project_are_applied_before_the_limit(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    other = f"{project}-other"
    await _filled(graph, project, "near", MANY, 0.9)
    await _filled(graph, other, "wanted", MANY, 0.95)
    far = await _filled(graph, project, "wanted", 3, -0.5)
    middle = await _filled(graph, project, "also", 2, 0.1)

    hits = await graph.nearest(project, MODEL, vector(), 3, types=["wanted"])
    assert {hit.uid for hit in hits} == {one.uid for one in far}
    hits = await graph.nearest(project, MODEL, vector(), 4, types=["wanted", "also", "unknown"])
    assert {hit.uid for hit in hits[:2]} == {one.uid for one in middle}
    assert len(hits) == 4
    assert await graph.nearest(project, MODEL, vector(), 3, types=["Wanted"]) == []


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


async def test_archived_vectors_take_no_room(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    near = await _filled(graph, project, "near", MANY, 0.9)
    far = await _filled(graph, project, "far", 3, -0.5)
    for start in range(0, MANY, 100):
        await graph.delete_entities(project, [one.name for one in near[start : start + 100]])
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
