"""Finds current entities by words and by vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from unstuck_memory.graphs.neo4j.client import Client, KnownModel
from unstuck_memory.vectors import KeywordHit, Vector, VectorHit

COUNTED = 10_000  # entities that have a word: of a more frequent one the weight is nearly nothing
EXACT = 2_000  # vectors: in a project that has not more, all are compared exactly
REACH = 100  # vectors that the index gives at first
FARTHEST = 6_400  # that it gives at most; what then lacks is searched for exactly
GROWTH = 8
# What the analyzer leaves out: no entity is found by it.
_LEFT_OUT = "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with"
STOP_WORDS = frozenset(_LEFT_OUT.split())
# An upper bound of the terms that the analyzer makes of a word: those of Chinese or Japanese are single characters.
_TERMS = re.compile(r"[A-Za-z0-9_]+|\w")


async def keyword(
    client: Client, project: str, words: Sequence[str], limit: int, types: Sequence[str] | None
) -> list[KeywordHit]:
    """Lucene's BM25 gives a term less than its weight, ln(1 + (all - having + 0.5) / (having + 0.5)): that is the most it could be."""
    asked = [word for word in dict.fromkeys(words) if _TERMS.search(word) and word.lower() not in STOP_WORDS]
    if not asked:
        return []
    found = await client.rows(
        "keyword",
        project=project,
        words=[{"phrase": phrase(word), "terms": len(_TERMS.findall(word))} for word in asked],
        query=" ".join(map(phrase, asked)),
        counted=COUNTED,
        limit=limit,
        types=None if types is None else list(types),
    )
    return [KeywordHit(uid, min(1.0, share)) for uid, share in found]


def phrase(word: str) -> str:
    """The word as Lucene reads it as text: in quotes, only a quote and a backslash mean something."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


async def nearest(
    client: Client,
    project: str,
    model: KnownModel,
    vector: Vector,
    limit: int,
    types: Sequence[str] | None,
) -> list[VectorHit]:
    """The index knows nothing of projects and types: it gives more and more, until enough of what it gave is right."""
    params: dict[str, Any] = {
        "project": project,
        "model": model.number,
        "vector": vector.tolist(),
        "limit": limit,
    }
    if types is not None:
        params["types"] = list(types)
    few = await client.run(_text(client, "few_vectors", types), params | {"limit": EXACT + 1})
    if few[0][0] > EXACT:
        params["index"] = f"memory_vectors_{model.number}"
        reach = max(REACH, 10 * limit)
        while reach <= FARTHEST:
            [[given, hits]] = await client.run(
                _text(client, "nearest_by_index", types), params | {"reach": reach}
            )
            if len(hits) == limit:
                return _hits(hits)
            if given < reach:
                break  # that is all it has, or all it can reach: of vectors that are alike it misses many
            reach *= GROWTH
    return _hits(await client.run(_text(client, "nearest_exactly", types), params))


async def compare(
    client: Client, project: str, model: KnownModel, vector: Vector, uids: Sequence[str]
) -> list[VectorHit]:
    asked = list(dict.fromkeys(uids))
    found = await client.rows(
        "compare", project=project, model=model.number, vector=vector.tolist(), uids=asked
    )
    return _hits(found)


def _text(client: Client, name: str, types: Sequence[str] | None) -> str:
    return client.texts[name].replace("{of_types}", "" if types is None else "AND e.entity_type IN $types")


def _hits(found: list[list[Any]]) -> list[VectorHit]:
    """Neo4j's similarity is (1 + cosine) / 2."""
    return [VectorHit(uid, max(-1.0, min(1.0, 2.0 * similarity - 1.0)), at) for uid, similarity, at in found]
