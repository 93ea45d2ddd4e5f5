"""Vectors in Neo4j: only current ones are in its index, which knows nothing of projects and types."""

import numpy as np
import pytest
from support.neo4j import Neo4j
from support_memory.conformance.given import (
    HOUR,
    MODEL,
    changed,
    chunk,
    created,
    embed,
    embedding,
    new,
    vector,
)
from support_memory.places import Place
from unstuck_memory.graph import Graph
from unstuck_memory.graphs.neo4j import search
from unstuck_memory.values import Entity
from unstuck_memory.vectors import Embedding, Model, Vector

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.fixture
def place(neo4j_place: Place) -> Place:
    return neo4j_place


def _unit(seed: int, count: int) -> list[Vector]:
    found = np.random.default_rng(seed).standard_normal((count, MODEL.dimension)).astype(np.float32)
    return list(found / np.linalg.norm(found, axis=1, keepdims=True))


def _own(entity: Entity, *texts: str, fence: int = 1) -> Embedding:
    """Vectors of texts that entities may share."""
    chunks = tuple(chunk(vector(0.5), text) for text in texts)
    return Embedding(uid=entity.uid, version=entity.version, fence=fence, model=MODEL, chunks=chunks)


def _kept(server: Neo4j, text: str) -> list[tuple[bool, bool]]:
    """Whether the vector of a text is in the index, and whether it is unused."""
    [(number,)] = server.execute("MATCH (m:EmbeddingModel {name: $name}) RETURN m.number", name=MODEL.name)
    query = f"MATCH (v:EmbeddingVector {{hash: $hash}}) RETURN v:EmbeddingVector{number}, v.unused_since IS NOT NULL"
    return [
        (bool(at), bool(since)) for at, since in server.execute(query, hash=chunk(vector(), text).hash.hex())
    ]


async def test_what_the_index_finds_is_what_an_exact_search_finds(
    graph: Graph, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await graph.use_model(MODEL)
    asked, *given = _unit(1, 121)
    made = await created(
        graph, project, *(new(f"{project} {number}", kind=f"kind {number % 3}") for number in range(120))
    )
    stored = [embedding(entity, one, fence=1) for entity, one in zip(made, given, strict=True)]
    assert all(await graph.store_embeddings(stored))
    exact = await graph.nearest(project, MODEL, asked, 10)
    of_kind = await graph.nearest(project, MODEL, asked, 10, types=["kind 1", "none"])

    monkeypatch.setattr(search, "EXACT", 0)
    monkeypatch.setattr(search, "FARTHEST", 10**6)
    by_index = await graph.nearest(project, MODEL, asked, 10)
    assert [hit.score for hit in by_index] == pytest.approx([hit.score for hit in exact], abs=1e-5)
    assert [hit.uid for hit in by_index] == [hit.uid for hit in exact]
    assert [hit.uid for hit in await graph.nearest(project, MODEL, asked, 10, types=["kind 1"])] == [
        hit.uid for hit in of_kind
    ]


async def test_the_index_is_asked_for_more_until_enough_is_right(
    graph: Graph, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another project has all that is near; and what the index never reaches is found without it."""
    await graph.use_model(MODEL)
    other = f"{project}-other"
    near = [vector(0.99 + number / 100_000) for number in range(60)]
    made = await created(graph, other, *(new(f"{other} {number}") for number in range(60)))
    await graph.store_embeddings([embedding(entity, one) for entity, one in zip(made, near, strict=True)])
    far = await created(graph, project, *(new(f"{project} {number}") for number in range(5)))
    for entity in far:
        await embed(graph, entity, vector(-0.99))

    monkeypatch.setattr(search, "EXACT", 0)
    monkeypatch.setattr(search, "REACH", 2)
    for farthest in (1, 100, 10**6):
        monkeypatch.setattr(search, "FARTHEST", farthest)
        hits = await graph.nearest(project, MODEL, vector(), 3)
        assert len(hits) == 3, farthest
        assert {hit.uid for hit in hits} <= {entity.uid for entity in far}


async def test_a_database_that_was_emptied_takes_models_of_other_dimensions(
    graph: Graph, graph_server: Neo4j, place: Place, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its indexes are still there, and numbers of models are given again."""
    first, second = Model(f"{project} first", 3), Model(f"{project} second", 4)
    await graph.use_model(first)
    [ann] = await created(graph, project, "Ann")
    await embed(graph, ann, vector(dimension=3), model=first)
    graph_server.execute("MATCH (m:EmbeddingModel {name: $name}) DELETE m", name=first.name)

    monkeypatch.setattr(search, "EXACT", 0)
    async with place.graph() as later:
        await later.use_model(second)
        [bob] = await created(later, project, "Bob")
        await embed(later, bob, vector(dimension=4), model=second)
        hits = await later.nearest(project, second, vector(dimension=4), 1)
        assert [hit.uid for hit in hits] == [bob.uid]


async def test_a_vector_leaves_the_index_with_the_last_current_version_that_has_it(
    graph: Graph, graph_server: Neo4j, project: str
) -> None:
    await graph.use_model(MODEL)
    ann, bob = await created(graph, project, "Ann", "Bob")
    both, alone = f"{project} both", f"{project} alone"
    assert await graph.store_embeddings([_own(ann, both, alone), _own(bob, both)]) == [True, True]
    assert _kept(graph_server, both) == _kept(graph_server, alone) == [(True, False)]

    later = await changed(graph, project, "Ann", "moved on")
    assert _kept(graph_server, both) == [(True, False)]
    assert _kept(graph_server, alone) == [(False, False)]
    assert await graph.store_embeddings([_own(later, both)]) == [True]
    assert _kept(graph_server, alone) == [(False, True)]
    await graph.delete_entities(project, ["Ann", "Bob"])
    assert _kept(graph_server, both) == [(False, False)]


async def test_a_text_has_the_vector_that_it_got_last(graph: Graph, project: str) -> None:
    """A model that changed behind its name, say."""
    await graph.use_model(MODEL)
    [ann] = await created(graph, project, "Ann")
    for fence, cosine in ((1, 0.5), (2, 0.25)):
        chunks = (chunk(vector(cosine), f"{project} text"),)
        stored = Embedding(uid=ann.uid, version=1, fence=fence, model=MODEL, chunks=chunks)
        assert await graph.store_embeddings([stored]) == [True]
        assert [round(hit.score, 4) for hit in await graph.nearest(project, MODEL, vector(), 5)] == [cosine]


async def test_a_purge_deletes_vectors_that_nobody_has_had_for_as_long(
    graph: Graph, graph_server: Neo4j, project: str
) -> None:
    await graph.use_model(MODEL)
    [ann, bob] = await created(graph, project, "Ann", "Bob")
    texts = old, gone, kept = [f"{project} {what}" for what in ("old", "gone", "kept")]
    await graph.store_embeddings([_own(ann, old), _own(bob, gone)])
    assert await graph.store_embeddings([_own(ann, kept, fence=2)]) == [True]
    await graph.delete_entities(project, ["Bob"])
    await graph.purge(project, HOUR)
    assert [len(_kept(graph_server, text)) for text in texts] == [1, 1, 1]

    age = "MATCH (v) WHERE (v.project = $project AND v.valid_to > 0) OR v.hash = $hash"
    age += " SET v.valid_to = v.valid_to - $by, v.unused_since = v.unused_since - $by"
    hash_ = chunk(vector(), old).hash.hex()
    graph_server.execute(age, project=project, hash=hash_, by=2 * HOUR)
    await graph.purge(project, HOUR)
    assert _kept(graph_server, old) == []
    assert _kept(graph_server, gone) == [(False, True)], "it is unused from now on"
    assert _kept(graph_server, kept) == [(True, False)]
    nodes = graph_server.execute("MATCH (e:EntityId {uid: $uid}) RETURN e", uid=bob.uid)
    assert nodes == [], "nothing is left of an entity without versions"
    assert await graph.store_embeddings([_own(ann, old, gone, fence=3)]) == [True]
    assert _kept(graph_server, gone) == _kept(graph_server, old) == [(True, False)]
