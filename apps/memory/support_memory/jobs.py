"""Queues of embeddings for tests of what is written before a job runs."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.values import Entity
from unstuck_memory.vectors import Model


class Untouchable:
    """A provider that must not be asked for anything but its name and dimension."""

    kind, hosted, name = "untouchable", True, "twelve"

    async def model(self) -> Model:
        return Model(self.name, 12)

    def pieces(self, lead: str, text: str) -> list[str]:
        raise AssertionError("a provider was used where nothing may be embedded")

    def cut(self, text: str) -> str:
        raise AssertionError("a provider was used where nothing may be embedded")

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise AssertionError("a provider was called where nothing may be embedded")

    async def aclose(self) -> None: ...


class Watched(MockProvider):
    """Counts the texts that it embeds; ``pause`` holds it up in the middle of that."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: Counter[str] = Counter()
        self.asked = asyncio.Event()
        self.pause: asyncio.Event | None = None

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts.update(texts)
        self.asked.set()
        if self.pause is not None:
            await self.pause.wait()
        return await super().embed(texts)


class Recorded:
    """Jobs that are noted down; while ``error`` is set, the queue cannot be reached."""

    def __init__(self) -> None:
        self.provider = Untouchable()
        self.calls: list[list[tuple[str, int]]] = []
        self.error: Exception | None = None

    async def schedule(self, entities: Sequence[Entity]) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append([(entity.name, entity.version) for entity in entities])

    def taken(self) -> list[tuple[str, int]]:
        """All jobs since the last time."""
        jobs = [job for call in self.calls for job in call]
        self.calls.clear()
        return jobs
