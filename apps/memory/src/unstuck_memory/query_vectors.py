"""The vector of a question: soon, or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np

from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.vectors import Model, Vector

PATIENCE = 2.0  # seconds that a question waits for its provider
KEPT = 64  # vectors of the last questions, so that all pages of a search have the same one

logger = logging.getLogger("unstuck_memory")


class NoVectorError(Exception):
    """The provider failed, or took too long."""


class QueryVectors:
    """Asks one provider. A failure is logged, and tried again by the next question."""

    def __init__(self, provider: Provider, patience: float = PATIENCE) -> None:
        self._provider = provider
        self._patience = patience
        self._kept: dict[str, Vector] = {}
        self.known_model: Model | None = None

    def deadline(self) -> float:
        """When a question that comes now stops waiting, by the clock of the event loop."""
        return asyncio.get_running_loop().time() + self._patience

    async def model(self, deadline: float) -> Model:
        if self.known_model is None:
            async with self._asking(deadline):
                self.known_model = await self._provider.model()
        return self.known_model

    async def of(self, question: str, deadline: float) -> Vector:
        if (found := self._kept.pop(question, None)) is None:
            async with self._asking(deadline):
                text = await asyncio.to_thread(self._provider.cut, question)
                [row] = await self._provider.embed([text])
                found = np.asarray(row, np.float32)
        self._kept[question] = found
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    @asynccontextmanager
    async def _asking(self, deadline: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(deadline):
                yield
        except Exception as error:
            # Whatever a provider raises, words are still there to search by.
            why = str(error) or f"no answer within {self._patience:g} seconds"
            logger.warning("a question got no vector from %s: %s", self._provider.kind, why)
            raise NoVectorError(why) from error
