"""Measures how long search takes among 100,000 entities of 5 observations, by mode, from the question's text to the hits; and how soon a
fresh server gives its first answer, and how much memory it has then.

``python bench/memory_search_speed.py``; ``--quick`` is a smoke check. Questions are embedded by wordllama; the vectors that they are
compared with are made up, of as many numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parent.parent
    sys.path[0] = str(ROOT)  # the files beside this one are bench.…
    sys.path += [str(ROOT / "tests"), str(ROOT / "apps/memory")]  # whose servers serve here, too

from support_memory.stdio_server import StdioServer, environment
from unstuck_memory.embeddings.providers import open_provider
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.search import Mode, Search

from bench.memory_graph import PROJECT, Texts, embed, fill
from bench.noise import Noise, wait_for_calm

ROUNDS = 100
STARTS = 5
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


def fresh(folder: Path, tool: str, question: str) -> None:
    """Start a server as a host does, and wait for its first answer."""
    wait_for_calm(20.0)
    noise, took, used, sizes = Noise(), [], [], []
    for _ in range(STARTS):
        began = time.perf_counter()
        with StdioServer(
            folder,
            "--project",
            PROJECT,
            env=environment(folder, UNSTUCK_MEMORY_EMBEDDINGS="wordllama"),
        ) as server:
            server.hello()
            found = server.call(tool, query=question)
            took.append(time.perf_counter() - began)
            used.append(_processor_seconds(server.pid))
            sizes.append(_megabytes(server.pid))
            server.end_input()
            server.wait()
    middle, cpu = sorted(took)[STARTS // 2], sorted(used)[STARTS // 2]
    print(
        f"a fresh server, {tool} by {found['searchType']}: {middle:.2f} s to its first answer, {min(took):.2f} to {max(took):.2f}, asked for < 2; "
        f"{cpu:.2f} s of processor time; {max(sizes):.0f} MB then (others used {noise.cores():.1f} cores)",
        flush=True,
    )


def _processor_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _megabytes(pid: int) -> float:
    """The most that the process had in memory."""
    [line] = re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(line) / 1024


async def run(count: int) -> None:
    texts = Texts()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        path = Path(folder) / "unstuck-memory" / "graph.db"
        path.parent.mkdir(0o700)  # where a server looks for it
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
        for tool in ("search_nodes", "semantic_search"):  # of which only the second loads the model
            fresh(Path(folder), tool, " ".join(texts.words(WORDS)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/memory_search_speed.py", description=__doc__)
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="1,000 entities: does it all still run?")
    options = parser.parse_args()
    asyncio.run(run(1_000 if options.quick else options.entities))


if __name__ == "__main__":
    main()
