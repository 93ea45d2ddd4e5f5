"""Measures a worker of the memory beside its provider: how much of the provider's raw rate is left.

``python bench/memory_worker.py``; ``--quick`` is a smoke check. The provider needs 5 ms for a text and serves one request at a time:
``waiting``, as a hosted one does, or ``computing`` on one processor, as a model in the worker's own process does.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.memory import Memory
from unstuck_memory.values import NewEntity

from unstuck import Worker

SECONDS = 0.005  # that the provider needs for a text
OBSERVATIONS = 5
ASKED = 0.8
ROUNDS = 3
AT_ONCE = 256


class Slow(MockProvider):
    """Adds to each text what a real model costs."""

    def __init__(self, *, computing: bool) -> None:
        super().__init__()
        self._computing = computing
        self._one_at_a_time = asyncio.Lock()

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        async with self._one_at_a_time:
            if self._computing:
                await asyncio.to_thread(_compute, SECONDS * len(texts))
            else:
                await asyncio.sleep(SECONDS * len(texts))
        return await super().embed(texts)


def _compute(seconds: float) -> None:
    """Keep a processor busy, without the interpreter's lock, for so much of its time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2000)


async def raw(provider: Slow, texts: Sequence[str]) -> float:
    """Texts a second, without anything around it."""
    began = time.perf_counter()
    for start in range(0, len(texts), AT_ONCE):
        await provider.embed(texts[start : start + AT_ONCE])
    return len(texts) / (time.perf_counter() - began)


async def worked(provider: Slow, entities: int) -> float:
    """Texts a second by one worker, from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="unstuck-bench-") as folder:
        async with (
            SqliteGraph(Path(folder, "graph.db")) as graph,
            EmbeddingJobs(graph, provider, f"sqlite:///{folder}/jobs.db") as jobs,
        ):
            await graph.migrate()
            memory = Memory(graph, "default", jobs)
            for start in range(0, entities, 50):
                await memory.create_entities(
                    [_entity(number) for number in range(start, min(start + 50, entities))]
                )
            began = time.perf_counter()
            await Worker(jobs.app, burst=True).run()
            took = time.perf_counter() - began
            coverage = await memory.coverage()
            assert coverage.embedded == coverage.entities == entities
    return entities * (OBSERVATIONS + 1) / took


def _entity(number: int) -> NewEntity:
    observations = tuple(f"observation {which} of {number}" for which in range(OBSERVATIONS))
    return NewEntity(name=f"entity {number}", entity_type="thing", observations=observations)


async def main(entities: int, rounds: int) -> bool:
    texts = [f"text {number}" for number in range(entities * (OBSERVATIONS + 1))]
    good = True
    print(f"{len(texts)} texts of {entities} entities, {1000 * SECONDS:g} ms each, {rounds} rounds")
    for kind in ("waiting", "computing"):
        shares: list[float] = []
        for _ in range(rounds):
            provider = Slow(computing=kind == "computing")
            bare, ours = await raw(provider, texts), await worked(provider, entities)
            shares.append(ours / bare)
            print(f"{kind}: {bare:.0f} texts a second raw, {ours:.0f} by a worker: {ours / bare:.2f}")
        middle = statistics.median(shares)
        good = good and middle >= ASKED
        print(f"{kind}: median {middle:.2f}, {ASKED} is asked for")
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    os.environ.setdefault("EMBED_JOB_RETENTION_DAYS", "14")
    sys.exit(not asyncio.run(main(40 if quick else 400, 1 if quick else ROUNDS)))
