"""Measures a graph of the memory with 100,000 entities: creating, keyword search, nearest vectors.

``python bench/memory_graph.py`` on SQLite, ``--store neo4j`` on a server of its own. ``--quick`` is a smoke check.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parent.parent
    sys.path[0] = str(ROOT)  # the files beside this one are bench.…
    sys.path.append(str(ROOT / "tests"))  # whose servers serve here, too

from unstuck_memory.graph import Graph
from unstuck_memory.values import Entity, NewEntity
from unstuck_memory.vectors import Chunk, Embedding, Model

from bench.noise import Noise, wait_for_calm

PROJECT = "bench"
OBSERVATIONS = 5
WORDS, LENGTH = 20_000, 12
CLUSTERS = 2_000
ROUNDS = 100
ASKED = {"create": 50.0, "nearest 256": 60.0, "nearest 384": 90.0}
"""The milliseconds that half of the calls may take at most, with 100,000 entities and 500,000 vectors."""


class Texts:
    """Sentences of words that are as unevenly common as those of a language."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(1)
        commonness = 1 / np.arange(2, WORDS + 2)
        self._chance = commonness / commonness.sum()

    def words(self, count: int) -> list[str]:
        return [f"word{number}" for number in self._rng.choice(WORDS, count, p=self._chance)]

    def entities(self, first: int, count: int) -> list[NewEntity]:
        words = iter(self.words(count * OBSERVATIONS * LENGTH))
        return [
            NewEntity(
                name=f"entity {number}",
                entity_type=f"type {number % 20}",
                observations=tuple(" ".join(next(words) for _ in range(LENGTH)) for _ in range(OBSERVATIONS)),
            )
            for number in range(first, first + count)
        ]


@asynccontextmanager
async def opened(store: str, folder: Path) -> AsyncIterator[Callable[[], Graph]]:
    """What makes graphs at one place."""
    if store == "sqlite":
        from unstuck_memory.graphs.sqlite import SqliteGraph

        yield lambda: SqliteGraph(str(folder / "graph.db"))
        return
    from support.neo4j import GRAPH, Neo4j
    from unstuck_memory.graphs.neo4j import Neo4jGraph

    with Neo4j(GRAPH) as server:
        yield lambda: Neo4jGraph(server.uri, "neo4j", "", GRAPH)


async def timed(name: str, calls: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Take the calls one after the other, and print how long they took."""
    wait_for_calm(20.0)
    noise, samples = Noise(), []
    for call in calls:
        began = time.perf_counter()
        await call()
        samples.append((time.perf_counter() - began) * 1000)
    samples.sort()
    p50, p99 = samples[len(samples) // 2], samples[len(samples) * 99 // 100]
    asked = f", asked for < {ASKED[name]:g}" if name in ASKED else ""
    others = f"others used {noise.cores():.1f} cores"
    print(f"{name}: p50 {p50:.1f} ms{asked}; p99 {p99:.1f}, most {samples[-1]:.1f} ({others})", flush=True)


async def fill(graph: Graph, texts: Texts, count: int) -> None:
    began = time.perf_counter()
    for first in range(0, count, 500):
        await graph.create_entities(PROJECT, texts.entities(first, min(500, count - first)))
    took = time.perf_counter() - began
    print(
        f"filled with {count:,} entities of {OBSERVATIONS} observations: {count / took:,.0f} a second",
        flush=True,
    )


async def embed(graph: Graph, model: Model, entities: Sequence[Entity]) -> NDArray[np.float32]:
    """Give each entity a vector for its text and all observations but one; around centres, as those of texts are."""
    await graph.use_model(model)
    rng = np.random.default_rng(model.dimension)
    centres = rng.standard_normal((CLUSTERS, model.dimension), dtype=np.float32)
    vectors = centres[rng.integers(CLUSTERS, size=len(entities) * OBSERVATIONS)]
    vectors += 0.7 * rng.standard_normal(vectors.shape, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    began = time.perf_counter()
    for first in range(0, len(entities), 100):
        part = entities[first : first + 100]
        await graph.store_embeddings(
            [
                Embedding(
                    uid=entity.uid,
                    version=entity.version,
                    fence=1,
                    model=model,
                    chunks=_chunks(vectors, (first + number) * OBSERVATIONS),
                )
                for number, entity in enumerate(part)
            ]
        )
    rate = len(vectors) / (time.perf_counter() - began)
    print(f"stored {len(vectors):,} vectors of {model.dimension}: {rate:,.0f} a second", flush=True)
    return vectors


def _chunks(vectors: NDArray[np.float32], first: int) -> tuple[Chunk, ...]:
    return tuple(
        Chunk(
            hash=hashlib.sha256(f"{first + number}".encode()).digest(),
            vector=vectors[first + number],
            observation=number - 1 if number else None,
        )
        for number in range(OBSERVATIONS)
    )


async def search(
    graph: Graph, model: Model, entities: Sequence[Entity], vectors: NDArray[np.float32]
) -> None:
    """Ask for what is near some of the vectors, and compare it with what a look at all of them finds."""
    rng = np.random.default_rng(2)
    asked = vectors[rng.integers(len(vectors), size=ROUNDS)]
    asked = asked + 0.5 * rng.standard_normal(asked.shape, dtype=np.float32) / np.float32(
        model.dimension**0.5
    )
    asked = (asked / np.linalg.norm(asked, axis=1, keepdims=True)).astype(np.float32)
    began = time.perf_counter()
    await graph.nearest(PROJECT, model, asked[0], 10)
    print(
        f"the first search of a process at {model.dimension}: {time.perf_counter() - began:.2f} s", flush=True
    )

    def nearest(of: NDArray[np.float32]) -> Callable[[], Awaitable[object]]:
        return lambda: graph.nearest(PROJECT, model, of, 10)

    await timed(f"nearest {model.dimension}", [nearest(one) for one in asked])
    found = 0
    for one in asked[:20]:
        best = (vectors @ one).reshape(-1, OBSERVATIONS).max(axis=1)
        right = {entities[number].uid for number in np.argsort(-best)[:10]}
        found += len(right & {hit.uid for hit in await graph.nearest(PROJECT, model, one, 10)})
    print(f"recall@10 at {model.dimension}: {found / 200:.3f}", flush=True)


async def run(store: str, count: int, dimensions: Sequence[int]) -> None:
    texts = Texts()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        async with opened(store, Path(folder)) as graphs, graphs() as graph:
            await graph.migrate()

            def create(number: int) -> Callable[[], Awaitable[object]]:
                new = texts.entities(count + 50 * number, 50)
                return lambda: graph.create_entities(PROJECT, new)

            await timed("create in a small graph", [create(number) for number in range(ROUNDS, 2 * ROUNDS)])
            await fill(graph, texts, count)
            entities = await graph.list_entities(PROJECT, count)
            for dimension in dimensions:
                model = Model(f"of {dimension}", dimension)
                vectors = await embed(graph, model, entities)
                async with graphs() as fresh:
                    await search(fresh, model, entities, vectors)
                del vectors

            def keyword() -> Callable[[], Awaitable[object]]:
                words = texts.words(4)
                return lambda: graph.keyword(PROJECT, words, 10)

            await timed("create", [create(number) for number in range(ROUNDS)])
            await timed("keyword", [keyword() for _ in range(ROUNDS)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/memory_graph.py", description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "neo4j"), default="sqlite")
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument(
        "--dimensions", default="256,384", help="of the models, one after the other; empty for none"
    )
    parser.add_argument("--quick", action="store_true", help="1,000 entities: does it all still run?")
    options = parser.parse_args()
    count = 1_000 if options.quick else options.entities
    asyncio.run(run(options.store, count, [int(text) for text in options.dimensions.split(",") if text]))


if __name__ == "__main__":
    main()
