"""Vectors, and what search finds by them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
"""float32, finite, of unit length, of its model's dimension. Nothing else is written."""


class Model(Struct, frozen=True):
    """Which model made a vector. Vectors of different models are never compared; nor are those of two dimensions of one name."""

    name: str
    dimension: int


class Chunk(Struct, frozen=True):
    """One of an entity's vectors: of its whole text, or of one observation (or a part of a long one)."""

    hash: bytes
    """SHA-256 of the text. A text that has a vector of this model is not embedded again."""
    vector: Vector
    observation: int | None = None
    """Which observation, counted from 0; None for the whole text."""


class Embedding(Struct, frozen=True):
    """All vectors of one version of an entity, as one job made them."""

    uid: str
    version: int
    fence: int
    """The fence of the job's lease. What an older fence wrote does not replace what a newer one did."""
    model: Model
    chunks: tuple[Chunk, ...]


class KeywordHit(Struct, frozen=True):
    """An entity that has some of the words. ``score`` is between 0 and 1: 1 would be the best possible match."""

    uid: str
    score: float


class VectorHit(Struct, frozen=True):
    """An entity by its best vector. ``score`` is the cosine, from -1 to 1."""

    uid: str
    score: float
    observation: int | None
    """The observation whose vector is the best; None if that is the whole text's."""
