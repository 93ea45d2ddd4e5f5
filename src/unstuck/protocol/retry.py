"""fate(): what an unsuccessful attempt leads to. Pure, and the only place that decides it."""

from __future__ import annotations

from collections.abc import Sequence

from unstuck.protocol.job import JITTER, Category, Failure, Job
from unstuck.protocol.outcome import Outcome, Settled, failed, retried


def fate(job: Job, failure: Failure, *, delay: float | None = None, jitter: float = 0.0) -> Outcome:
    """The outcome of an attempt that ended in an error the handler reported.

    ``delay`` replaces the backoff when the other side asked for it. ``jitter`` is a number from 0 to 1.
    """
    tries = spent(job)
    if failure.category is Category.TRANSIENT and tries < job.max_attempts:
        return retried(
            job.lease, failure, backoff(job.backoff, tries, jitter * job.jitter) if delay is None else delay
        )
    # An infrastructure failure that hit one job hits the next one, too: nothing of this queue runs until somebody has looked.
    halt = f"CRITICAL: {failure.message[:300]}" if failure.category is Category.CRITICAL else ""
    return failed(job.lease, failure, halt=halt)


def crash_fate(job: Job, failure: Failure, *, seen: bool = False, jitter: float = 0.0) -> Outcome:
    """The outcome of an attempt whose worker fell silent, or was ``seen`` to have died.

    Without a crash budget a crash is an attempt like any other; with one it is counted apart.
    """
    crashes = job.crashes + 1
    over = job.attempts >= job.max_attempts if job.max_crashes is None else crashes >= job.max_crashes
    who = "crash" if seen else "reaper"
    if over:
        return failed(job.lease, failure, event=f"{who}:failed({failure.code})", crashed=True)
    which = job.attempts if job.max_crashes is None else crashes
    delay = backoff(job.lapse_backoff, which, jitter * JITTER)
    return retried(job.lease, failure, delay, event=f"{who}:requeued", crashed=True)


def parent_fate(job: Job, answer: Settled) -> Outcome:
    """The outcome of an attempt that succeeded while the job's children do not let it complete; the words are BullMQ's."""
    if answer is Settled.CHILDREN_PENDING:
        why, category = f"Job {job.id} has pending dependencies", Category.TRANSIENT
    else:
        why, category = (
            f"Cannot complete job {job.id} because it has at least one failed child",
            Category.PERMANENT,
        )
    return fate(job, Failure(category, str(answer), f"{why}. moveToFinished", attempt=job.attempts))


def spent(job: Job) -> int:
    """The attempts that count against ``max_attempts``."""
    return job.attempts if job.max_crashes is None else job.attempts - job.crashes


def backoff(steps: Sequence[float], attempt: int, more: float = 0.0) -> float:
    """Seconds to wait after the given attempt (from 1); the last step repeats, no steps means no wait.

    ``more`` is the share of itself by which the wait is lengthened, or shortened if it is negative.
    """
    if not steps:
        return 0.0
    step = steps[min(max(attempt, 1), len(steps)) - 1]
    return step * (1.0 + more)
