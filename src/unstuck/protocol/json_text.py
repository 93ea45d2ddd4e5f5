"""encode(): JSON that every store can keep. Payloads, results and progress go through it, whatever interface they come by."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from unstuck.protocol.errors import PayloadError

BACKSLASH = 92
DEEPEST = 100  # levels of nesting that every store's JSON functions can follow
TOO_DEEP = f"the value is nested too deeply, or contains itself: at most {DEEPEST} levels are allowed"
LIMIT = 1024 * 1024  # bytes of a payload or a result as JSON


def encode(value: Any, what: str, encoder: msgspec.json.Encoder | None = None) -> bytes:
    """JSON with exactly the value's content; raises a PayloadError that names what JSON cannot express."""
    try:
        text = (encoder or _encoder).encode(value)
    except UnicodeEncodeError:
        raise PayloadError(f"{what}: a text has half a surrogate pair, which is not valid Unicode") from None
    except RecursionError:
        raise PayloadError(f"{what}: {TOO_DEEP}") from None
    except Exception as error:  # noqa: BLE001 - models run code of their own
        raise PayloadError(
            f"{what}: {' '.join(str(error).split())}; use a JSON value, a dataclass or a model"
        ) from None
    if len(text) > LIMIT:
        raise PayloadError(
            f"{what}: {len(text):,} bytes as JSON, at most {LIMIT:,} are allowed; "
            "store the data elsewhere and pass its address",
            size=len(text),
        )
    if len(text) > 2 * DEEPEST and text.count(b"[") + text.count(b"{") > DEEPEST and _depth(text) > DEEPEST:
        raise PayloadError(f"{what}: {TOO_DEEP}")
    # JSON has no NaN (it would silently become null) and PostgreSQL no NUL: refuse both, on every store alike.
    if text.find(b"null") >= 0 or (BACKSLASH in text and b"\\u0000" in text):
        for leaf in _leaves(msgspec.to_builtins(value, enc_hook=plain)):
            if isinstance(leaf, float) and not math.isfinite(leaf):
                raise PayloadError(f"{what}: {leaf} is not a number in JSON; use None")
            if isinstance(leaf, str) and "\0" in leaf:
                raise PayloadError(
                    f"{what}: a text contains the NUL character, which not every store can keep"
                )
    return text


def plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):  # a pydantic model
        return value.model_dump(mode="json")
    raise TypeError(f"a value of type {type(value).__name__!r} cannot be written as JSON")


def _depth(text: bytes) -> int:
    """How deep JSON is nested; brackets in strings do not count."""
    deepest = depth = 0
    for mark in _BRACKETS.finditer(text):
        if mark[0] in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif mark[0] in (b"]", b"}"):
            depth -= 1
    return deepest


def _leaves(value: Any) -> Iterator[Any]:
    todo = [value]
    while todo:
        match todo.pop():
            case dict() as found:
                todo += found.keys()
                todo += found.values()
            case list() | tuple() | set() | frozenset() as found:
                todo += found
            case leaf:
                yield leaf


_encoder = msgspec.json.Encoder(enc_hook=plain)
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
