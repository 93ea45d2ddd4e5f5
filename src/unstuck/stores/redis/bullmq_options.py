"""BullMQ's options of a job: how we write them for its workers, and how we read those that it wrote."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from unstuck.protocol.job import NewJob
from unstuck.stores.shared.values import milliseconds

HIGHEST, STEPS = 9, 10  # one of our priorities is ten of BullMQ's, where a lower number is sooner
MOST = 2**53  # attempts, in effect without limit
LONGEST = 365 * 86400.0  # seconds of backoff
STEEPEST = 36  # doublings after which one millisecond exceeds LONGEST

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def their_priority(priority: int) -> int:
    return STEPS * (STEPS - priority)


def our_priority(theirs: int) -> int:
    """A priority that another program wrote is rounded; in BullMQ no priority is the highest."""
    return min(HIGHEST, max(0, STEPS - round(theirs / STEPS)))


def text(job: NewJob) -> str:
    """The options with which a worker of BullMQ's treats the job as ours would, as far as it can."""
    start = _start(job.max_attempts, job.backoff, their_priority(job.priority))
    delay = f'"delay":{milliseconds(job.delay)},' if job.delay else ""
    if job.key is not None and job.interval:
        return f'{start}{delay}"de":{_encode(_deduplication(job)).decode()}}}'
    return f'{start}{delay}"jobId":{_encode(job.id).decode()}}}'


def _deduplication(job: NewJob) -> dict[str, Any]:
    """How BullMQ's own producers debounce or throttle."""
    once = {"id": job.key, "ttl": milliseconds(job.interval)}
    return once if job.debounce is None else once | {"extend": True, "replace": True}


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
    """Read the retry options of a job that BullMQ enqueued."""
    opts = _decode(text)
    if opts == []:  # how PHP writes an empty object
        opts = {}
    if not isinstance(opts, dict):
        raise TypeError("its options are not an object")
    attempts = min(max(1, int(opts.get("attempts") or 1)), MOST)
    backoff = opts.get("backoff") or 0
    if not isinstance(backoff, dict):
        backoff = {"delay": backoff}
    delay, jitter = backoff.get("delay") or 0, backoff.get("jitter")
    steps = min(attempts, STEEPEST) if backoff.get("type") == "exponential" else 1
    return {
        "max_attempts": attempts,
        "backoff": tuple(min(LONGEST, delay / 1000 * 2**n) for n in range(steps)) if delay else (),
        "jitter": -min(1.0, max(0.0, jitter)) if isinstance(jitter, int | float) else 0.0,
    }
