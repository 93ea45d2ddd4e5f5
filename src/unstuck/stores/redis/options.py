"""BullMQ's options of a job: what ours say to its workers, and what its own mean to us."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from unstuck.model import NewJob
from unstuck.stores.values import milliseconds

HIGHEST, STEPS = 9, 10  # a point of ours is ten of BullMQ's, where less is sooner
MOST = 2**53  # attempts, which means for ever
LONGEST = 365 * 86400.0  # seconds of backoff

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def their_priority(priority: int) -> int:
    return STEPS * (STEPS - priority)


def our_priority(theirs: int) -> int:
    """One that was not written by us is rounded; none at all is the highest there."""
    return min(HIGHEST, max(0, STEPS - round(theirs / STEPS)))


def text(job: NewJob) -> str:
    """Those by which a worker of BullMQ's treats the job as we would, as far as it can."""
    start = _start(job.max_attempts, job.backoff, their_priority(job.priority))
    delay = f'"delay":{milliseconds(job.delay)},' if job.delay else ""
    return f'{start}{delay}"jobId":{_encode(job.id).decode()}}}'


@lru_cache(1000)
def _start(attempts: int, backoff: tuple[float, ...], priority: int) -> str:
    opts: dict[str, Any] = {"attempts": attempts, "priority": priority}
    if backoff:
        doubling = len(backoff) > 1 and backoff[1] == 2 * backoff[0]
        kind = "exponential" if doubling else "fixed"
        opts["backoff"] = {"type": kind, "delay": milliseconds(backoff[0])}
    return _encode(opts).decode()[:-1] + ","


@lru_cache(1000)
def budget(text: bytes) -> dict[str, Any]:
    """What those of a job mean that BullMQ enqueued."""
    opts = _decode(text)
    if opts == []:  # how PHP writes an object without anything in it
        opts = {}
    if not isinstance(opts, dict):
        raise TypeError("its options are no object")
    attempts = min(max(1, int(opts.get("attempts") or 1)), MOST)
    backoff = opts.get("backoff") or 0
    kind, delay = (
        (backoff.get("type"), backoff.get("delay") or 0) if isinstance(backoff, dict) else ("", backoff)
    )
    steps = min(attempts, 16) if kind == "exponential" else 1
    return {
        "max_attempts": attempts,
        "backoff": tuple(min(LONGEST, delay / 1000 * 2**n) for n in range(steps)) if delay else (),
    }
