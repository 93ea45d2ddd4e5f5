"""Shows that no vector goes missing: one of two workers is killed while it embeds, and the other one finishes.

Run it from the root of the repository by ``make demo``, or: ``python apps/memory/demo.py --entities 3000``
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unstuck_memory import Memory, NewEntity, settings
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.search import Search

NAMES = ("Ann", "Bob", "Cid", "Dora", "Emil", "Fay", "Gil", "Hana", "Ivo", "June")
PLACES = ("Lyon", "Oslo", "Porto", "Graz", "Cork", "Turin", "Ghent", "Split", "Malmö", "Bonn")
HABITS = (
    "repairs old radios",
    "sings in a choir",
    "climbs on Sundays",
    "bakes rye bread",
    "reads about comets",
)
QUESTION = "Who is an animal doctor?"
AT_ONCE = 50


async def main(count: int) -> None:
    found, provider = settings.load(), settings.provider()
    async with found.graph() as graph, EmbeddingJobs(graph, provider, found.jobs_at) as jobs:
        await graph.migrate()
        memory = Memory(graph, "default", jobs)
        began, slowest = time.perf_counter(), 0.0
        for first in range(0, count, AT_ONCE):
            call = time.perf_counter()
            await memory.create_entities([_person(n) for n in range(first, min(first + AT_ONCE, count))])
            slowest = max(slowest, time.perf_counter() - call)
        print(
            f"{count:,} entities written in {time.perf_counter() - began:.1f} s, the slowest call in {slowest * 1000:.0f} ms; "
            f"no model was asked"
        )
        with _worker() as first_worker, _worker():
            await _until(memory, count // 10)
            first_worker.kill()
            first_worker.wait()
            print(f"worker {first_worker.pid} is killed in the middle of its work")
            await _until(memory, count)
        answer = await Search(graph, provider, "default").find(QUESTION, limit=3)
        print(QUESTION)
        for hit in answer.hits:
            print(f"  {hit.score:.2f}  {hit.entity.name}: {hit.observation}")
        dead = await jobs.count_dead_letters()
        print(f"every entity has its vectors, and {dead} jobs failed")
    await provider.aclose()


def _person(number: int) -> NewEntity:
    name = f"{NAMES[number % 10]} {number}"
    habit = "works as a veterinarian for horses" if number == 7 else HABITS[number % 5]
    facts = (habit, f"lives in {PLACES[number // 10 % 10]}", f"has phone {number + 1000}")
    return NewEntity(name=name, entity_type="person", observations=facts)


@contextmanager
def _worker() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "unstuck", "worker", "unstuck_memory.worker:app", "--processes", "0"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as worker:
        try:
            yield worker
        finally:
            worker.terminate()


async def _until(memory: Memory, wanted: int) -> None:
    """Show the coverage until so many entities have their vectors."""
    while (coverage := await memory.coverage()).embedded < wanted:
        _draw(coverage.embedded, coverage.entities, end="\r" if sys.stdout.isatty() else "")
        await asyncio.sleep(0.1)
    _draw(coverage.embedded, coverage.entities, end="\n")


def _draw(done: int, of: int, *, end: str) -> None:
    if end:
        bar = "█" * (30 * done // of)
        print(f"  {bar:·<30} {done:>6,} of {of:,} entities have their vectors", end=end, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entities", type=int, default=3000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_DATA_HOME": str(Path(folder)), "EMBED_JOB_RETENTION_DAYS": "14"}
        for name in ("NEO4J_URI", "EMBED_JOB_DATABASE_URI", "UNSTUCK_MEMORY_JOBS"):
            os.environ.pop(name, None)
        os.environ["UNSTUCK_MEMORY_EMBEDDINGS"] = "wordllama"
        asyncio.run(main(given.entities))
