"""Structured logs: one JSON object a line, with everything that was said beside the message."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from unstuck.redact import redact

_USUAL = frozenset(vars(logging.makeLogRecord({})))
_encode = msgspec.json.Encoder(enc_hook=repr).encode


class JsonLines(logging.Formatter):
    """Formats a record as JSON; what a call gave as ``extra`` stands beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage(), 8192),
        }
        line |= {
            name: value for name, value in vars(record).items() if name not in _USUAL and name != "message"
        }
        if record.exc_info:
            line["stack"] = redact(self.formatException(record.exc_info), 16384, keep_end=True)
        return _encode(line).decode()


def log_json(level: str = "INFO") -> None:
    """Send the logs of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
