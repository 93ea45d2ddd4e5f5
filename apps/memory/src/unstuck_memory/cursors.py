"""Opaque cursors: where the next page of one listing begins. A cursor belongs to the question that it continues."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

import msgspec

from unstuck_memory.errors import InvalidInput

T = TypeVar("T")
LONGEST = 4_000  # characters; the longest name that a cursor may hold fits


def made(position: Any, *question: Any) -> str:
    """A cursor for a position in the answer to a question. Both are what JSON can hold."""
    text = msgspec.json.encode([_mark(question), position])
    return urlsafe_b64encode(text).decode().rstrip("=")


def read(cursor: Any, kind: type[T], *question: Any) -> T | None:
    """The position of a cursor; ``InvalidInput`` if it is not one of this question."""
    if cursor is None:
        return None
    step = (
        "pass next_cursor of the answer before, with the same arguments, or leave cursor out to begin again"
    )
    if not isinstance(cursor, str):
        raise InvalidInput(f"cursor is of type {type(cursor).__name__}: it must be a text; {step}")
    if len(cursor) > LONGEST:
        raise InvalidInput(f"cursor has {len(cursor):,} characters: at most {LONGEST:,} are possible; {step}")
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        mark, position = msgspec.json.decode(text, type=tuple[str, msgspec.Raw])
        if mark == _mark(question):
            return msgspec.json.decode(position, type=kind)
    except (ValueError, msgspec.MsgspecError):
        raise InvalidInput(f"cursor is {cursor[:40]!r}: it is not one of this memory's; {step}") from None
    raise InvalidInput(f"cursor is {cursor[:40]!r}: it belongs to another question; {step}")


def _mark(question: tuple[Any, ...]) -> str:
    return hashlib.sha256(msgspec.json.encode(question)).hexdigest()[:16]
