"""The vectors of a SQLite graph: candidates by their signs, what a process keeps in memory, what is deleted and when."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray
from support_memory.conformance.given import MODEL, changed, chunk, created, digest, embed, new, vector
from unstuck_memory.graphs.sqlite import SqliteGraph, embeddings, sign_bits
from unstuck_memory.graphs.sqlite.sign_bits import SignBits
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.vectors import Chunk, Embedding, Model

pytestmark = pytest.mark.anyio
HOUR = 3_600_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "graph.db"


@pytest.fixture
async def graph(path: Path) -> AsyncIterator[SqliteGraph]:
    async with SqliteGraph(path) as graph:
        await graph.migrate()
        await graph.use_model(MODEL)
        yield graph


def _units(rng: np.random.Generator, count: int, dimension: int) -> NDArray[np.float32]:
    """In clusters, as sentences are; the same ones for every call."""
    centers = np.random.default_rng(0).standard_normal((20, dimension))
    values = centers[rng.integers(0, 20, count)] + 0.7 * rng.standard_normal((count, dimension))
    units: NDArray[np.float32] = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return units


async def test_the_nearest_of_many_are_found_by_their_signs(graph: SqliteGraph) -> None:
    """More vectors than are all compared exactly, of a dimension that fills no whole word."""
    rng = np.random.default_rng(11)
    model = Model("wide", 200)
    await graph.use_model(model)
    vectors = _units(rng, 6000, 200)
    entities = await created(graph, "p", *(f"entity {number}" for number in range(1000)))
    stored = [
        Embedding(
            entity.uid, 1, 1, model,
            tuple(
                Chunk(digest(f"{at} {number}"), vectors[6 * at + number], number or None) for number in range(6)
            ),
        )
        for at, entity in enumerate(entities)
    ]  # fmt: skip
    assert all(await graph.store_embeddings(stored))

    right = asked = 0
    for query in _units(rng, 40, 200):
        best = (vectors @ query).reshape(1000, 6).max(axis=1)
        expected = {entities[at].uid for at in np.argsort(-best)[:10]}
        hits = await graph.nearest("p", model, query, 10)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        by_uid = {entity.uid: float(score) for entity, score in zip(entities, best, strict=True)}
        assert all(hit.score <= by_uid[hit.uid] + 1e-5 for hit in hits)
        right += len(expected & {hit.uid for hit in hits})
        asked += 10
    assert right / asked >= 0.9


async def test_another_processs_write_loads_what_changed_and_no_more(graph: SqliteGraph, path: Path) -> None:
    ann, bob = await created(graph, "p", "Ann", "Bob")
    await embed(graph, ann, vector(0.9))
    assert len(await graph.nearest("p", MODEL, vector(), 5)) == 1

    other = apsw.Connection(str(path))
    other.execute("UPDATE embedding SET bits = NULL")  # what a process that reads everything would miss
    other.close()
    async with SqliteGraph(path) as process:
        await embed(process, bob, vector(0.5))
    hits = await graph.nearest("p", MODEL, vector(), 5)
    assert [hit.uid for hit in hits] == [ann.uid, bob.uid]


def test_signs_that_change_again_and_again_give_the_nearest_of_those_that_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sign_bits, "BLOCK", 64)
    rng = np.random.default_rng(5)
    kept = SignBits(100)
    vectors: dict[int, NDArray[np.float32]] = {}
    for change in range(1, 150):
        entities = rng.choice(np.arange(1, 60), size=rng.integers(1, 8), replace=False).tolist()
        for entity in entities:
            vectors[entity] = _units(rng, int(rng.integers(1, 9)) if rng.random() < 0.7 else 0, 100)
        rows = [
            (entity, f"type {entity % 3}", sign_bits.sign_bits(list(vectors[entity])) or None)
            for entity in entities
        ]
        kept.apply(rows, change)

        [query] = _units(rng, 1, 100)
        for types in (None, ["type 1"], ["type 0", "type 2", "unknown"]):
            distance = {
                (entity, number): int(np.count_nonzero((one > 0) != (query > 0)))
                for entity, all_of_it in vectors.items()
                for number, one in enumerate(all_of_it)
                if types is None or f"type {entity % 3}" in types
            }
            assert sorted(kept.nearest(query, types, 10_000, 0)) == sorted(distance)
            found = kept.nearest(query, types, 10, 0)
            assert len(set(found)) == len(found) == min(10, len(distance))
            assert sorted(map(distance.__getitem__, found)) == sorted(distance.values())[:10]


async def test_old_entities_are_marked_in_bounded_steps(
    graph: SqliteGraph, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 2 * embeddings.MARKED_AT_ONCE + 1
    for start in range(0, many, 1000):
        names = [f"{number:06}" for number in range(start, min(many, start + 1000))]
        await created(graph, "p", *names)
    later = Model("later", 12)
    await graph.use_model(later)
    changes: list[int] = []
    mark = embeddings.mark

    def counted(tx: Transaction, model: Model) -> bool:
        before = tx.connection.total_changes()
        done = mark(tx, model)
        changes.append(tx.connection.total_changes() - before)
        return done

    monkeypatch.setattr(embeddings, "mark", counted)
    assert len(await graph.without_embeddings(later, many + 1)) == many
    assert len(changes) == 3
    assert max(changes) <= embeddings.MARKED_AT_ONCE + 1
    assert len(await graph.without_embeddings(later, 10)) == 10
    assert len(changes) == 3, "once"


def _aged(path: Path, by: int) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE unused SET since = since - ?", (by,))
    connection.execute(
        "UPDATE entity SET valid_from = valid_from - :by, valid_to = valid_to - :by WHERE valid_to IS NOT NULL", {"by": by}
    )  # fmt: skip
    connection.close()


async def test_vectors_go_when_no_entity_has_had_their_text_for_long_enough(
    graph: SqliteGraph, path: Path
) -> None:
    ann, bob, cid = await created(graph, "p", new("Ann", "a"), "Bob", "Cid")

    async def stored(entity: Any, *texts: str) -> None:
        chunks = tuple(chunk(vector(), text) for text in texts)
        assert await graph.store_embeddings([Embedding(entity.uid, entity.version, 1, MODEL, chunks)]) == [
            True
        ]

    async def known() -> set[str]:
        texts = {
            hashlib.sha256(text.encode()).digest(): text
            for text in ("first", "both", "bobs", "second", "cids")
        }
        return {texts[value] for value in await graph.known_vectors(MODEL, list(texts))}

    await stored(cid, "cids")
    await stored(ann, "first", "both", "cids")
    await stored(bob, "both", "bobs")
    await stored(await changed(graph, "p", "Ann", "b"), "second")
    await graph.delete_entities("p", ["Bob"])
    await graph.purge("p", HOUR)
    assert await known() == {"first", "both", "bobs", "second", "cids"}, "a text may come back"

    _aged(path, 2 * HOUR)
    purged = await graph.purge("p", HOUR)
    assert purged.entities == 2
    assert await known() == {"both", "bobs", "second", "cids"}, (
        "of Bob, who is gone only now, they stay a while"
    )
    _aged(path, 2 * HOUR)
    await graph.purge("p", HOUR)
    assert await known() == {"second", "cids"}
    assert len(await graph.nearest("p", MODEL, vector(), 5)) == 2


async def test_purging_takes_steps_of_a_bounded_size(graph: SqliteGraph, path: Path) -> None:
    names = [f"{number:06}" for number in range(1100)]
    for start in (0, 600):
        await created(graph, "p", *names[start : start + 600])
    await graph.delete_entities("p", names)
    _aged(path, 2 * HOUR)
    assert (await graph.purge("p", HOUR)).entities == 1100
    assert (await graph.size("p")).archived == 0
