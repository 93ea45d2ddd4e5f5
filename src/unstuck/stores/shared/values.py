"""Values as stores keep them: times as milliseconds since 1970, everything else as JSON text."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Job

# The columns of a job. Only Redis marks jobs that another system enqueued, and gives them a jitter of their own.
KEPT = tuple(name for name in Job.__struct_fields__ if name not in ("foreign", "jitter"))
_encode = msgspec.json.Encoder().encode
_worker = msgspec.json.Decoder(WorkerInfo).decode


@lru_cache(1000)  # the jobs of one call share many times
def at(ms: float | bytes) -> datetime:
    return datetime.fromtimestamp(float(ms) / 1000, UTC)


def moment(ms: float | None) -> datetime | None:
    return None if ms is None else at(ms)


def instant(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def expiry(expires: float | datetime | None, now: int) -> int | None:
    """When a job expires that is enqueued now."""
    if expires is None:
        return None
    return instant(expires) if isinstance(expires, datetime) else now + milliseconds(expires)


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def worker_text(worker: WorkerInfo) -> str:
    """A worker without its times, which the store sets."""
    return _encode(msgspec.structs.replace(worker, started_at=None, seen_at=None)).decode()


def worker(text: str | bytes, started_at: datetime | None, seen_at: datetime | None) -> WorkerInfo:
    return msgspec.structs.replace(_worker(text), started_at=started_at, seen_at=seen_at)


def json_text(value: Any) -> str | None:
    return None if value is None else _encode(value).decode()
