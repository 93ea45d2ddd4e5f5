"""The signs of the current vectors of one project by one model, one bit a number, in the memory of this process.

Vectors whose signs differ least are candidates for the nearest ones; the caller compares these exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unstuck_memory.vectors import Vector

Row: TypeAlias = tuple[
    int, str, bytes | None
]  # entity, type, bits; without bits the entity has no current vectors
Candidate: TypeAlias = tuple[int, int]  # entity and number of its chunk
BLOCK = 65_536  # vectors: small enough for the processor's cache
NONE = 0  # the entity of vectors that are not current any more
FAR = np.iinfo(np.uint16).max


def sign_bits(vectors: Sequence[Vector]) -> bytes:
    """The bits of vectors one after the other, each filled up to whole words of 64."""
    if not vectors:
        return b""
    bits = np.packbits(np.stack(vectors) > 0, axis=1)
    return np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).tobytes()


class Block(NamedTuple):
    """Columns of a table of vectors. They are never changed: searches in other threads may be reading them."""

    words: NDArray[np.uint64]  # a row for each word of the bits
    entity: NDArray[np.int64]
    number: NDArray[np.int32]
    kind: NDArray[np.int32]


class SignBits:
    """``change`` is the number of the last change that is in it."""

    def __init__(self, dimension: int) -> None:
        self.change = 0
        self.changing = threading.Lock()
        self._words = (dimension + 63) // 64
        self._blocks: tuple[Block, ...] = ()
        self._kinds: dict[str, int] = {}

    def apply(self, changed: Sequence[Row], change: int) -> None:
        """Replace the vectors of these entities. The caller has the lock ``changing``."""
        blocks = self._without(np.array([entity for entity, _, _ in changed], dtype=np.int64))
        added = self._block(row for row in changed if row[2])
        if blocks and len(blocks[-1].entity) < BLOCK:
            added = _joined(blocks.pop(), added)
        size = len(added.entity)
        blocks += [_part(added, start, start + BLOCK) for start in range(0, size, BLOCK)]
        self._blocks = tuple(blocks)
        self.change = change

    def nearest(self, vector: Vector, types: Sequence[str] | None, most: int, exact: int) -> list[Candidate]:
        """The best candidates, as many as ``most``; all, if they are not more than ``exact``."""
        blocks = self._blocks
        usable = [self._usable(block, types) for block in blocks]
        if sum(map(np.count_nonzero, usable)) <= max(most, exact):
            return list(_candidates(blocks, usable))
        query = np.frombuffer(sign_bits([vector]), dtype=np.uint64)
        distances = [
            np.where(mask, _distances(block, query), FAR) for block, mask in zip(blocks, usable, strict=True)
        ]
        limit = np.partition(np.concatenate(distances), most - 1)[most - 1]
        nearer = _candidates(blocks, [distance < limit for distance in distances])
        # Those at the limit may be many: texts that are alike have the same signs.
        at_limit = _candidates(blocks, [distance == limit for distance in distances])
        return list(islice(chain(nearer, at_limit), most))

    def _usable(self, block: Block, types: Sequence[str] | None) -> NDArray[np.bool_]:
        usable: NDArray[np.bool_] = block.entity != NONE
        if types is not None:
            usable &= np.isin(block.kind, [self._kinds[name] for name in types if name in self._kinds])
        return usable

    def _without(self, entities: NDArray[np.int64]) -> list[Block]:
        if not len(entities):
            return list(self._blocks)
        blocks = []
        for block in self._blocks:
            gone = np.isin(block.entity, entities)
            kept = block._replace(entity=np.where(gone, NONE, block.entity)) if gone.any() else block
            # A block of which most is gone is packed.
            if 2 * np.count_nonzero(kept.entity) < len(kept.entity):
                kept = _chosen(kept, kept.entity != NONE)
            blocks.append(kept)
        return [block for block in blocks if len(block.entity)]

    def _block(self, rows: Iterable[Row]) -> Block:
        entities, kinds, counts, bits = [], [], [], []
        for entity, kind, text in rows:
            assert text is not None
            entities.append(entity)
            kinds.append(self._kinds.setdefault(kind, len(self._kinds)))
            counts.append(len(text) // (8 * self._words))
            bits.append(text)
        words = np.frombuffer(b"".join(bits), dtype=np.uint64).reshape(-1, self._words)
        starts = np.cumsum([0, *counts[:-1]])[: len(counts)]
        return Block(
            np.ascontiguousarray(words.T),
            np.repeat(np.array(entities, dtype=np.int64), counts),
            (np.arange(len(words)) - np.repeat(starts, counts)).astype(np.int32),
            np.repeat(np.array(kinds, dtype=np.int32), counts),
        )


def _distances(block: Block, query: NDArray[np.uint64]) -> NDArray[np.uint16]:
    total = np.zeros(len(block.entity), dtype=np.uint16)
    for words, word in zip(block.words, query, strict=True):
        total += np.bitwise_count(words ^ word)
    return total


def _candidates(blocks: Iterable[Block], masks: Iterable[NDArray[np.bool_]]) -> Iterator[Candidate]:
    for block, mask in zip(blocks, masks, strict=True):
        yield from zip(block.entity[mask].tolist(), block.number[mask].tolist(), strict=True)


def _joined(one: Block, other: Block) -> Block:
    return Block(
        np.concatenate((one.words, other.words), axis=1),
        np.concatenate((one.entity, other.entity)),
        np.concatenate((one.number, other.number)),
        np.concatenate((one.kind, other.kind)),
    )


def _part(block: Block, start: int, end: int) -> Block:
    return Block(*(_column(column, slice(start, end)) for column in block))


def _chosen(block: Block, mask: NDArray[np.bool_]) -> Block:
    return Block(*(_column(column, mask) for column in block))


def _column(column: NDArray[Any], which: slice | NDArray[np.bool_]) -> NDArray[Any]:
    return np.ascontiguousarray(column[..., which])
