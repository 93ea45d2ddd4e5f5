"""Measures how long search takes among 100,000 entities of 5 observations, by mode, from the question's text to the hits.

``python bench/memory_search_speed.py``; ``--quick`` is a smoke check. Questions are embedded by wordllama; the vectors that they are
compared with are made up, of as many numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parent.parent
    sys.path[0] = str(ROOT)  # the files beside this one are bench.…
    sys.path.append(str(ROOT / "tests"))  # whose servers serve here, too

from unstuck_memory.embeddings.providers import open_provider
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.search import Mode, Search

from bench.memory_graph import PROJECT, Texts, embed, fill
from bench.noise import Noise, wait_for_calm

ROUNDS = 100
WORDS = 4  # of a question, as common or rare as those of the texts
ASKED: dict[Mode, float] = {"keyword": 60.0, "semantic": 60.0, "hybrid": 120.0}
"""The milliseconds that half of the searches may take at most on an idle machine."""


async def timed(search: Search, mode: Mode, questions: list[str]) -> None:
    """Search one after the other. Processor time shows what a search takes when others use the machine, too."""
    wait_for_calm(20.0)
    noise, took, used = Noise(), [], []
    for question in questions:
        began, began_using = time.perf_counter(), time.process_time()
        answer = await search.find(question, mode=mode)
        took.append((time.perf_counter() - began) * 1000)
        used.append((time.process_time() - began_using) * 1000)
        assert answer.mode == mode, answer.reason
    p50, p90 = sorted(took)[len(took) // 2], sorted(took)[len(took) * 9 // 10]
    others = f"others used {noise.cores():.1f} cores"
    cpu = sorted(used)[len(used) // 2]
    print(
        f"{mode}: p50 {p50:.1f} ms, asked for < {ASKED[mode]:g}; p90 {p90:.1f}; p50 of processor time {cpu:.1f} ({others})",
        flush=True,
    )


async def run(count: int) -> None:
    texts = Texts()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        path = Path(folder) / "graph.db"
        async with SqliteGraph(path) as graph:
            await graph.migrate()
            await fill(graph, texts, count)
            entities = await graph.list_entities(PROJECT, count)
            await embed(graph, await open_provider("wordllama").model(), entities)
        async with SqliteGraph(path) as graph:
            search = Search(graph, open_provider("wordllama"), PROJECT)
            began = time.perf_counter()
            first = await search.find(" ".join(texts.words(WORDS)))
            print(f"the first search, {first.mode}: {time.perf_counter() - began:.2f} s", flush=True)
            for mode in get_args(Mode):
                await timed(search, mode, [" ".join(texts.words(WORDS)) for _ in range(ROUNDS)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/memory_search_speed.py", description=__doc__)
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="1,000 entities: does it all still run?")
    options = parser.parse_args()
    asyncio.run(run(1_000 if options.quick else options.entities))


if __name__ == "__main__":
    main()
