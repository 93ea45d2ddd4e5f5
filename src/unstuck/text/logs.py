"""Structured logs: one JSON object a line, with the message and everything that was passed as ``extra``."""

from __future__ import annotations

import logging
import math
import reprlib
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any

import msgspec

from unstuck.text.redact import HIDDEN, redact

log = logging.getLogger("unstuck.worker")

# Characters of a text, items of a list and facts that a handler may add to a line.
TEXT, ITEMS, FACTS = 200, 10, 20
WHOLE_TEXT, WHOLE_LIST = 16384, 10_000  # the same for what the engine itself logs
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_FIRST = frozenset({"timestamp", "level", "logger"})
_encode = msgspec.json.Encoder().encode
_shortly = reprlib.Repr()
_shortly.maxstring = _shortly.maxother = _shortly.maxlong = TEXT


class JsonLines(logging.Formatter):
    """Formats a record as JSON; what a call passed as ``extra`` becomes fields beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(_message(record), 8192),
        }
        line |= {
            name: plain(value, WHOLE_TEXT, WHOLE_LIST, depth=3)
            for name, value in vars(record).items()
            if name not in _USUAL and name not in _FIRST
        }
        if record.exc_info:
            line["stack"] = redact(self.formatException(record.exc_info), WHOLE_TEXT, keep_end=True)
        return _encode(line).decode()


def log_json(level: str = "INFO") -> None:
    """Send the logs of this process, warnings among them, to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)


def bounded(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts from a handler in a form fit for a log: redacted, short and valid JSON."""
    return _object(facts, FACTS, TEXT, ITEMS, depth=2)


def plain(value: Any, text: int = TEXT, items: int = ITEMS, *, depth: int = 2) -> Any:
    """Any value in a form that JSON has: what is too long is cut, what is too deep becomes a short text."""
    try:
        return _plain(value, text, items, depth)
    except Exception:  # noqa: BLE001 - a strange object must not cost the line it is in
        return f"<{type(value).__name__}>"


def _plain(value: Any, text: int, items: int, depth: int) -> Any:
    match value:
        case None | bool():
            return value
        case int() if abs(value) < 2**63:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case str():
            return redact(str(value), text)
        case date():
            return value.isoformat()
        case Mapping() if depth:
            return _object(value, items, text, items, depth=depth - 1)
        case list() | tuple() | set() | frozenset() if depth:
            return [plain(inner, text, items, depth=depth - 1) for inner in islice(value, items)]
        case _:
            return redact(_shortly.repr(value), text)


def _object(value: Mapping[Any, Any], most: int, text: int, items: int, *, depth: int) -> dict[str, Any]:
    return {
        redact(str(name), TEXT): HIDDEN if _secret(name) else plain(inner, text, items, depth=depth)
        for name, inner in islice(value.items(), most)
    }


def _secret(name: object) -> bool:
    """Whether redact() would hide a value with this name."""
    sample = f"{str(name)[-100:]}=x"
    return redact(sample, 200) != sample


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a call whose arguments do not fit its text must not cost the line
        return str(record.msg)
