"""Finds current entities by words and by vectors."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence

import numpy as np

from unstuck_memory.graphs.sqlite import rows
from unstuck_memory.graphs.sqlite.embeddings import STORED, find_model
from unstuck_memory.graphs.sqlite.sign_bits import SignBits
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.vectors import KeywordHit, Model, Vector, VectorHit

CANDIDATES = 500  # that are compared exactly
EXACT = 2_000  # vectors: in a project that has not more, all are compared exactly
GROWTH = 4
# FTS5's bm25: what a word adds is less than (k1 + 1) times its idf, and no idf is less than this.
K1 = 1.2
LEAST_IDF = 1e-6
# Words that more than this share of all entities have take most of the time and tell little: if the others find any, they are left
# out. A few entities take no time.
COMMON = 0.2
FEW = 1_000


def keyword(
    tx: Transaction, project: str, words: Sequence[str], limit: int, types: Sequence[str] | None
) -> list[KeywordHit]:
    weights, common = _weights(
        tx, [_phrase(word) for word in dict.fromkeys(words) if any(map(str.isalnum, word))]
    )
    telling = {phrase: weight for phrase, weight in weights.items() if phrase not in common}
    hits = _ranked(tx, project, telling, limit, types)
    if not hits and common:
        hits = _ranked(tx, project, weights, limit, types)
    return hits


def _phrase(word: str) -> str:
    """The word as text: quoted, nothing in it is syntax."""
    return '"' + word.replace("\0", " ").replace('"', '""') + '"'


def _weights(tx: Transaction, phrases: Sequence[str]) -> tuple[dict[str, float], set[str]]:
    """The idf of each, as FTS5 computes it, and which of them are common."""
    [(total,)] = tx.rows("words_total")
    counts = {phrase: tx.value("words_count", query=phrase) for phrase in phrases}
    weights = {
        phrase: max(LEAST_IDF, math.log((total - count + 0.5) / (count + 0.5)))
        for phrase, count in counts.items()
    }
    return weights, {phrase for phrase, count in counts.items() if count > max(FEW, COMMON * total)}


def _ranked(
    tx: Transaction,
    project: str,
    weights: Mapping[str, float],
    limit: int,
    types: Sequence[str] | None,
) -> list[KeywordHit]:
    if not weights:
        return []
    asked = None if types is None else rows.texts(types)
    found = tx.rows("keyword", query=" OR ".join(weights), project=project, limit=limit, types=asked)
    best = (K1 + 1) * sum(weights.values())
    return [KeywordHit(uid, min(1.0, -rank / best)) for uid, rank in found]


class VectorSearch:
    """Keeps the sign bits of each project and model that is searched."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], SignBits] = {}
        self._making = threading.Lock()

    def nearest(
        self,
        tx: Transaction,
        project: str,
        model: Model,
        vector: Vector,
        limit: int,
        types: Sequence[str] | None,
    ) -> list[VectorHit]:
        known = find_model(tx, model)
        if known is None or limit < 1:
            return []
        bits = self._up_to_date(tx, known.row_id, model.dimension, project)
        most = max(CANDIDATES, 20 * limit)
        while True:
            candidates = bits.nearest(vector, types, most, EXACT)
            chunks = (
                {"model": known.row_id, "entity": entity, "number": number} for entity, number in candidates
            )
            hits = _best(tx, list(tx.each("chunk", chunks)), vector, limit)
            if len(hits) == limit or len(candidates) < most:
                return hits
            most *= GROWTH  # a few entities have all the vectors that are near

    def _up_to_date(self, tx: Transaction, model: int, dimension: int, project: str) -> SignBits:
        with self._making:
            bits = self._kept.setdefault((model, project), SignBits(dimension))
        last = tx.value("change_last", model=model, project=project) or 0
        if last > bits.change:
            with bits.changing:
                if bits.change == 0:
                    bits.apply(tx.rows("embeddings_all", model=model, project=project), last)
                elif last > bits.change:
                    changed = tx.rows("embeddings_changed", model=model, project=project, after=bits.change)
                    bits.apply(changed, last)
        return bits


def compare(
    tx: Transaction, project: str, model: Model, vector: Vector, uids: Sequence[str]
) -> list[VectorHit]:
    known = find_model(tx, model)
    if known is None:
        return []
    found = tx.rows("compare", project=project, model=known.row_id, uids=rows.texts(dict.fromkeys(uids)))
    return _best(tx, found, vector, len(uids))


def _best(tx: Transaction, found: Sequence[rows.Row], vector: Vector, limit: int) -> list[VectorHit]:
    """The entities of these chunks, each by its best one."""
    if not found:
        return []
    vectors = np.frombuffer(b"".join(row[2] for row in found), dtype=STORED).reshape(len(found), -1)
    scores = vectors @ vector
    best: dict[int, tuple[float, int | None]] = {}
    for at in np.argsort(-scores, kind="stable"):
        entity, observation, _ = found[at]
        if entity not in best:
            if len(best) == limit:
                break
            best[entity] = (float(scores[at]), observation)
    uids: dict[int, str] = dict(tx.rows("uids", entities=rows.texts(best)))
    return [
        VectorHit(uids[entity], max(-1.0, min(1.0, score)), observation)
        for entity, (score, observation) in best.items()
    ]
