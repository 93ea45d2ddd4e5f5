"""Vectors without a model, for tests and demonstrations: texts that share words are near each other."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from unstuck_memory.embeddings.providers.rows import unit_rows
from unstuck_memory.embeddings.providers.windows import bytes_window
from unstuck_memory.vectors import Model

_MODEL = Model("mock", 64)
_WORD = re.compile(r"\w+")


class MockProvider:
    """Sums a vector for each word. It knows no meaning, and is never chosen unless it is named."""

    kind = "mock"
    hosted = False

    name = _MODEL.name

    def __init__(self) -> None:
        self._window = bytes_window(2000)

    async def model(self) -> Model:
        return _MODEL

    def pieces(self, lead: str, text: str) -> list[str]:
        return self._window.pieces(lead, text)

    def cut(self, text: str) -> str:
        return self._window.cut(text)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return unit_rows([_vector(text) for text in texts], len(texts), _MODEL)

    async def aclose(self) -> None:
        """Nothing is open."""


def _vector(text: str) -> NDArray[np.float64]:
    words = _WORD.findall(text.casefold()) or [text]
    return np.asarray(np.sum([_word(word) for word in words], axis=0, dtype=np.float64))


@lru_cache(maxsize=100_000)
def _word(word: str) -> NDArray[np.int8]:
    digest = hashlib.shake_256(word.encode()).digest(_MODEL.dimension)
    return np.frombuffer(digest, dtype=np.int8) | np.int8(1)  # odd, so that no word is nothing
