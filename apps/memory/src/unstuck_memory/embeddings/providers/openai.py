"""Models behind OpenAI's interface: OpenAI itself, or a server that has the same, such as Ollama and vLLM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from unstuck import Transient
from unstuck_memory.embeddings.providers.rows import unit_rows
from unstuck_memory.embeddings.providers.windows import bytes_window
from unstuck_memory.vectors import Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI

BASE_URL = "https://api.openai.com/v1"
MODEL = "text-embedding-3-small"
_DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
_WINDOW = 8191
_NO_KEY = "none"  # for a server of one's own; the client insists on a key
_MOST_A_REQUEST = 300_000
"""Tokens of all texts of a request. Each byte counts as one, as in the window."""


class _Vector(Struct, frozen=True):
    embedding: list[float | None]
    index: int = 0


class _Answer(Struct, frozen=True):
    data: list[_Vector]


class OpenAIProvider:
    """One request for each call, or a few one after the other if the texts are very long. Nothing is tried again here.

    The model's name alone is the name of its vectors, so that a proxy before the same model does not make all of them again.
    """

    kind = "openai"
    hosted = True

    def __init__(
        self, key: str | None, *, base_url: str = BASE_URL, model: str = MODEL, timeout: float = 60.0
    ) -> None:
        self._key = key
        self._base_url = base_url
        self.name = model
        self._timeout = timeout
        self._window = bytes_window(_WINDOW)
        self._opened: AsyncOpenAI | None = None
        known = _DIMENSIONS.get(model) if base_url == BASE_URL else None
        self._model = None if known is None else Model(model, known)
        self._asking = asyncio.Lock()

    async def model(self) -> Model:
        async with self._asking:
            if self._model is None:
                found = await self._ask(["dimension"])
                model = Model(self.name, len(found[0]) if found else 0)
                unit_rows(found, 1, model)
                self._model = model
            return self._model

    def pieces(self, lead: str, text: str) -> list[str]:
        return self._window.pieces(lead, text)

    def cut(self, text: str) -> str:
        return self._window.cut(text)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        model = await self.model()
        parts = [unit_rows(await self._ask(some), len(some), model) for some in _requests(texts)]
        return np.concatenate(parts) if parts else unit_rows([], 0, model)

    async def aclose(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _ask(self, texts: Sequence[str]) -> list[list[float | None]]:
        client = await self._client()
        try:
            answer = await client.embeddings.with_raw_response.create(
                input=list(texts), model=self.name, encoding_format="float"
            )
        except Exception as error:
            self._hide_key(error)
            raise
        return await asyncio.to_thread(_vectors, answer.http_response.content)

    async def _client(self) -> AsyncOpenAI:
        if self._opened is None:
            openai = await asyncio.to_thread(import_module, "openai")  # takes most of a second
            if self._opened is None:
                self._opened = openai.AsyncOpenAI(
                    api_key=self._key or _NO_KEY,
                    base_url=self._base_url,
                    max_retries=0,
                    timeout=self._timeout,
                )
        return self._opened

    def _hide_key(self, error: Any) -> None:
        """A server may repeat the key in its refusal."""
        if self._key and self._key in f"{error} {getattr(error, 'body', '')}":
            error.args = (str(error).replace(self._key, "[redacted]"),)
            error.message, error.body = error.args[0], None


def _requests(texts: Sequence[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if some and size + length > _MOST_A_REQUEST:
            yield some
            some, size = [], 0
        some.append(text)
        size += length
    if some:
        yield some


def _vectors(content: bytes) -> list[list[float | None]]:
    try:
        answer = msgspec.json.decode(content, type=_Answer)
    except (msgspec.DecodeError, ValueError):
        answer = _lenient(content)
    return [each.embedding for each in sorted(answer.data, key=lambda each: each.index)]


def _lenient(content: bytes) -> _Answer:
    """Some servers write NaN, which is not JSON."""
    try:
        return msgspec.convert(json.loads(content), _Answer)
    except (ValueError, msgspec.ValidationError):
        raise Transient(
            "the embedding server's answer is not a list of vectors: is OPENAI_BASE_URL right?",
            code="bad_answer",
        ) from None
