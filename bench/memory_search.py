"""Measures how often search finds the right entity, by mode and provider.

``python bench/memory_search.py`` with wordllama, ``--provider folder:/path`` with a model of your own. The questions are in
``memory_questions.txt``: half of them share a stem with the entity that they ask for, half share none, which is checked. Each is
asked of those entities alone, and of them in a crowd of others.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the files beside this one are bench.…

from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.embeddings.providers import open_provider
from unstuck_memory.embeddings.texts import texts_of
from unstuck_memory.graph import Graph
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.search import Mode, Search
from unstuck_memory.search_words import words_of
from unstuck_memory.values import Entity, NewEntity
from unstuck_memory.vectors import Chunk, Embedding

from bench.memory_crowd import crowd

PROJECT = "bench"
DATA = Path(__file__).with_name("memory_questions.txt")
CROWD = 400
FIRST = 10  # hits that are looked at


class Question(NamedTuple):
    text: str
    right: str
    shared: bool
    """Whether it shares a stem with the entity."""
    many: bool
    """Whether the entity has many observations."""


SETS: Mapping[str, Callable[[Question], bool]] = {
    "all": lambda _: True,
    "shared stem": lambda question: question.shared,
    "no shared stem": lambda question: not question.shared,
    "1 observation": lambda question: not question.many,
    "20 observations": lambda question: question.many,
}


def read(path: Path = DATA) -> tuple[list[NewEntity], list[Question]]:
    """``# name | type``, ``- observation``, ``+ question with a shared stem``, ``? question without``."""
    entities: list[NewEntity] = []
    asked: list[tuple[str, str, bool]] = []
    for line in filter(None, path.read_text().splitlines()):
        mark, text = line[0], line[2:]
        if mark == "#":
            name, kind = text.rsplit(" | ", 1)
            entities.append(NewEntity(name=name, entity_type=kind))
        elif mark == "-":
            last = entities.pop()
            entities.append(
                NewEntity(
                    name=last.name, entity_type=last.entity_type, observations=(*last.observations, text)
                )
            )
        else:
            asked.append((text, entities[-1].name, mark == "+"))
    sizes = {entity.name: len(entity.observations) for entity in entities}
    return entities, [Question(text, name, shared, sizes[name] > 1) for text, name, shared in asked]


async def refuse_wrong_halves(graph: Graph, questions: Sequence[Question]) -> None:
    """A question that shares a stem with its entity finds it by words, among everything that they find; no other one does."""
    for question in questions:
        hits = await graph.keyword(PROJECT, words_of(question.text), 10_000)
        found = {entity.name for entity in await graph.get_by_uid([hit.uid for hit in hits])}
        if (question.right in found) != question.shared:
            raise SystemExit(
                f"{question.text!r} is in the wrong half of the questions for {question.right!r}"
            )


async def embed(graph: Graph, provider: Provider, entities: Sequence[Entity]) -> None:
    model = await provider.model()
    await graph.use_model(model)
    for entity in entities:
        texts = texts_of(entity, provider)
        rows = await provider.embed([text.text for text in texts])
        chunks = tuple(Chunk(text.hash, row, text.observation) for text, row in zip(texts, rows, strict=True))
        await graph.store_embeddings([Embedding(entity.uid, entity.version, 1, model, chunks)])


async def ranks(search: Search, mode: Mode, questions: Sequence[Question]) -> list[int | None]:
    """At which rank each question found its entity."""
    found = []
    for question in questions:
        answer = await search.find(question.text, mode=mode, limit=FIRST)
        assert answer.mode == mode, answer.reason
        found.append(next((hit.rank for hit in answer.hits if hit.entity.name == question.right), None))
    return found


def report(questions: Sequence[Question], found: Mapping[Mode, Sequence[int | None]]) -> None:
    print("| mode | " + " | ".join(SETS) + " |\n|---|" + "---|" * len(SETS))
    fives: dict[tuple[str, str], float] = {}
    for mode, of_all in found.items():
        cells = []
        for name, belongs in SETS.items():
            own = [rank for rank, question in zip(of_all, questions, strict=True) if belongs(question)]
            first = sum(rank == 1 for rank in own) / len(own)
            fives[mode, name] = sum(rank is not None and rank <= 5 for rank in own) / len(own)
            mean = sum(1 / rank for rank in own if rank) / len(own)
            cells.append(f"{first:.3f} {fives[mode, name]:.3f} {mean:.3f}")
        print(f"| {mode} | " + " | ".join(cells) + " |")
    best = max(fives["keyword", "all"], fives["semantic", "all"])
    least = fives["semantic", "no shared stem"] - 0.05
    print(f"hybrid recall@5 of all {fives['hybrid', 'all']:.3f}, wanted at least {best:.3f};", end=" ")
    print(
        f"without shared stems {fives['hybrid', 'no shared stem']:.3f}, wanted at least {least:.3f}",
        flush=True,
    )


async def run(provider: Provider, others: int) -> None:
    entities, questions = read()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        async with SqliteGraph(Path(folder) / "graph.db") as graph:
            await graph.migrate()
            changes = await graph.create_entities(PROJECT, [*entities, *crowd(others)])
            await refuse_wrong_halves(graph, questions)
            await embed(graph, provider, [change.entity for change in changes if change.entity])
            search = Search(graph, provider, PROJECT, patience=60.0)
            found: dict[Mode, list[int | None]] = {
                mode: await ranks(search, mode, questions) for mode in get_args(Mode)
            }
    crowded = f"in a crowd of {others}" if others else "alone"
    print(
        f"\n{provider.kind}, {len(questions)} questions, {len(entities)} entities {crowded}: recall@1, recall@5, MRR@{FIRST}\n"
    )
    report(questions, found)


async def measure(spec: str, others: int) -> None:
    provider = open_provider(spec)
    try:
        for count in (0, others):
            await run(provider, count)
    finally:
        await provider.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/memory_search.py", description=__doc__)
    parser.add_argument("--provider", default="wordllama", help="wordllama, folder:/path, openai or mock")
    parser.add_argument("--crowd", type=int, default=CROWD, help="how many others stand beside the entities")
    options = parser.parse_args()
    asyncio.run(measure(options.provider, options.crowd))


if __name__ == "__main__":
    main()
