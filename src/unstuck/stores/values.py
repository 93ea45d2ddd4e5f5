"""Values as stores write them down: times as milliseconds since 1970, everything else as JSON text."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from unstuck.model import Worker

_encode = msgspec.json.Encoder().encode
_worker = msgspec.json.Decoder(Worker).decode


@lru_cache(1000)  # the jobs of a call have many times in common
def at(ms: float | bytes) -> datetime:
    return datetime.fromtimestamp(float(ms) / 1000, UTC)


def moment(ms: float | None) -> datetime | None:
    return None if ms is None else at(ms)


def instant(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def worker_text(worker: Worker) -> str:
    """A worker without its times, which are the store's to tell."""
    return _encode(msgspec.structs.replace(worker, started_at=None, seen_at=None)).decode()


def worker(text: str | bytes, started_at: datetime | None, seen_at: datetime | None) -> Worker:
    return msgspec.structs.replace(_worker(text), started_at=started_at, seen_at=seen_at)


def json_text(value: Any) -> str | None:
    return None if value is None else _encode(value).decode()
