"""Which texts of an entity are embedded."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from msgspec import Struct

from unstuck_memory.embeddings.provider import Provider
from unstuck_memory.values import Entity


class Text(Struct, frozen=True):
    """A text that gets a vector of its own."""

    text: str
    hash: bytes
    """SHA-256 of the text."""
    observation: int | None = None
    """Which observation it is of, counted from 0; None for the whole entity."""


def texts_of(entity: Entity, provider: Provider) -> tuple[Text, ...]:
    """The whole entity, as much as the model takes, and each observation, in pieces if it is long. No text is there twice.

    The same entity and model give the same texts. A local model splits long texts with its tokenizer: call this in a thread.
    """
    texts: dict[str, int | None] = {}
    for text, observation in _all(entity, provider):
        texts.setdefault(text, observation)
    return tuple(Text(text, sha256(text.encode()).digest(), which) for text, which in texts.items())


def _all(entity: Entity, provider: Provider) -> Iterator[tuple[str, int | None]]:
    whole = "\n".join([f"{entity.name} ({entity.entity_type})", *entity.observations])
    yield provider.cut(whole), None
    for index, observation in enumerate(entity.observations):
        for piece in provider.pieces(f"{entity.name}: ", observation):
            yield piece, index
