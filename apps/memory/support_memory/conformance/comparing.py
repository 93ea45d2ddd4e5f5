"""Comparing given entities with a vector: what search by words has found, however far it is by its meaning."""

import pytest
from unstuck_memory.graph import Graph
from unstuck_memory.vectors import Model

from support_memory.conformance.given import MODEL, changed, created, embed, new, vector


async def test_entities_are_compared_by_their_best_vector(graph: Graph, project: str) -> None:
    await graph.use_model(MODEL)
    ann, bob, cid, bare = await created(graph, project, new("Ann", "a", "b"), "Bob", "Cid", "bare")
    await embed(graph, ann, vector(0.1), vector(0.5), vector(0.8))
    await embed(graph, bob, vector(0.9))
    await embed(graph, cid, vector(-0.7))

    hits = await graph.compare(project, MODEL, vector(), [cid.uid, bare.uid, ann.uid, "unknown", ann.uid])
    assert [(hit.uid, hit.observation) for hit in hits] == [(ann.uid, 1), (cid.uid, None)]
    assert [hit.score for hit in hits] == pytest.approx([0.8, -0.7], abs=1e-4)
    assert await graph.compare(project, MODEL, vector(), []) == []


async def test_only_current_vectors_of_the_model_and_project_are_compared(graph: Graph, project: str) -> None:
    other = Model("other", MODEL.dimension)
    await graph.use_model(MODEL)
    await graph.use_model(other)
    gone, outdated, foreign = await created(graph, project, "gone", "outdated", "foreign")
    [elsewhere] = await created(graph, f"{project}-other", "elsewhere")
    for entity in (gone, outdated, elsewhere):
        await embed(graph, entity, vector(0.9))
    await embed(graph, foreign, vector(0.9), model=other)
    uids = [gone.uid, outdated.uid, foreign.uid, elsewhere.uid]
    assert len(await graph.compare(project, MODEL, vector(), uids)) == 2

    await graph.delete_entities(project, ["gone"])
    await changed(graph, project, "outdated", "b")
    assert await graph.compare(project, MODEL, vector(), uids) == []
    assert await graph.compare(project, Model("unknown", 12), vector(), uids) == []
