"""fate(): what an unsuccessful attempt leads to. Pure, and the only place that decides it."""

from __future__ import annotations

from collections.abc import Sequence

from unstuck.model import Category, Failure, Job, Outcome, failed, retried

JITTER = 0.2  # a delay is lengthened by at most this share of itself, never shortened


def fate(job: Job, failure: Failure, *, delay: float | None = None, jitter: float = 0.0) -> Outcome:
    """The outcome of an attempt that ended in an error the handler reported.

    ``delay`` replaces the backoff when the other side asked for it. ``jitter`` is a number from 0 to 1.
    """
    tries = spent(job)
    if failure.category is Category.TRANSIENT and tries < job.max_attempts:
        return retried(job.lease, failure, backoff(job.backoff, tries, jitter) if delay is None else delay)
    # What broke the ground for one job breaks it for the next: nothing of this queue runs until somebody looked.
    halt = f"CRITICAL: {failure.message[:300]}" if failure.category is Category.CRITICAL else ""
    return failed(job.lease, failure, pause=halt)


def crash_fate(job: Job, failure: Failure, *, seen: bool = False, jitter: float = 0.0) -> Outcome:
    """The outcome of an attempt whose worker fell silent, or was ``seen`` to have died.

    Without a crash budget a crash is an attempt like any other; with one it is counted apart.
    """
    crashes = job.crashes + 1
    over = job.attempts >= job.max_attempts if job.max_crashes is None else crashes >= job.max_crashes
    who = "crash" if seen else "reaper"
    if over:
        return failed(job.lease, failure, event=f"{who}:failed({failure.code})", crashed=True)
    delay = backoff(job.lapse_backoff, job.attempts if job.max_crashes is None else crashes, jitter)
    return retried(job.lease, failure, delay, event=f"{who}:requeued", crashed=True)


def spent(job: Job) -> int:
    """The attempts that count against ``max_attempts``."""
    return job.attempts if job.max_crashes is None else job.attempts - job.crashes


def backoff(steps: Sequence[float], attempt: int, jitter: float = 0.0) -> float:
    """Seconds to wait after the given attempt (from 1); the last step repeats, no steps means no wait."""
    if not steps:
        return 0.0
    step = steps[min(max(attempt, 1), len(steps)) - 1]
    return step * (1.0 + JITTER * jitter)
