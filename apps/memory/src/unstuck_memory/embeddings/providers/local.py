"""A provider that runs a model in this process, in threads, without any network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unstuck_memory.embeddings.providers.rows import unit_rows
from unstuck_memory.embeddings.providers.windows import Window
from unstuck_memory.vectors import Model


class LoadedModel(Protocol):
    """A model whose files have been read. Several threads use it at once."""

    model: Model
    window: Window

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[Sequence[int], NDArray[np.float32]]]:
        """Vectors of any length, some texts at a time: the indexes of these texts, and a row for each."""
        ...


class LocalProvider:
    """Reads the model's files when it is first used, and computes a batch at a time, so that it can be cancelled soon."""

    hosted = False

    def __init__(
        self,
        kind: str,
        name: Callable[[], str],
        load: Callable[[str], LoadedModel],
        *,
        dimension: int | None = None,
    ) -> None:
        self.kind = kind
        self._name = name
        self._load = load
        self._dimension = dimension  # where it is known without the files
        self._model: LoadedModel | None = None
        self._loading = Lock()

    @cached_property
    def name(self) -> str:
        return self._name()

    async def model(self) -> Model:
        if self._dimension is not None:
            return Model(self.name, self._dimension)
        return (await asyncio.to_thread(self._loaded)).model

    def pieces(self, lead: str, text: str) -> list[str]:
        return self._loaded().window.pieces(lead, text)

    def cut(self, text: str) -> str:
        return self._loaded().window.cut(text)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        loaded = await asyncio.to_thread(self._loaded)
        rows = np.empty((len(texts), loaded.model.dimension), np.float32)
        batches = loaded.batches(texts)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            indexes, found = batch
            rows[indexes] = found
        return unit_rows(rows, len(texts), loaded.model)

    async def aclose(self) -> None:
        """Nothing is open."""

    def _loaded(self) -> LoadedModel:
        with self._loading:
            if self._model is None:
                self._model = self._load(self.name)
            return self._model
