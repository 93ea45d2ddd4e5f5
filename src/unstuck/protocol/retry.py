"""What an unsuccessful attempt leads to: fate() of one that ended in an error, judge() of one whose worker fell silent or died.

Pure, and the only place that decides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unstuck.protocol.follow_ups import after_failure
from unstuck.protocol.job import EXPIRED, JITTER, Category, Failure, Job
from unstuck.protocol.outcome import Outcome, Settled, expired, failed, retried


def fate(job: Job, failure: Failure, *, delay: float | None = None, jitter: float = 0.0) -> Outcome:
    """The outcome of an attempt that ended in an error the handler reported.

    ``delay`` replaces the backoff when the other side asked for it. ``jitter`` is a number from 0 to 1.
    """
    tries = job.spent
    if failure.category is Category.TRANSIENT and tries < job.max_attempts:
        return retried(
            job.lease, failure, backoff(job.backoff, tries, jitter * job.jitter) if delay is None else delay
        )
    # An infrastructure failure that hit one job hits the next one, too: nothing of this queue runs until somebody has looked.
    halt = f"CRITICAL: {failure.message[:300]}" if failure.category is Category.CRITICAL else ""
    return failed(job.lease, failure, halt=halt, then=after_failure(job, failure))


def judge(job: Job, of: str | None = None, cause: str = "", *, jitter: float = 0.0) -> Outcome:
    """What becomes of a job whose lease ran out, whose worker ``of`` died of ``cause``, or that was not started in time.

    Only reapers hold a job that was not started: if one died before it settled it, the next one comes to the same result.
    """
    if job.can_expire:
        return expired_fate(job)
    failure = _silence(job) if of is None else _death(job, cause)
    return crash_fate(job, failure, seen=of is not None, jitter=jitter)


def judge_child(job: Job, cause: str, message: str, *, pid: int, worker: str, jitter: float = 0.0) -> Outcome:
    """What becomes of a job whose own process died of ``cause``, while its worker lives."""
    failure = _crash(job, "crashed", cause, message, worker, {"pid": pid, "cause": cause})
    return crash_fate(job, failure, seen=True, jitter=jitter)


def crash_fate(job: Job, failure: Failure, *, seen: bool = False, jitter: float = 0.0) -> Outcome:
    """The outcome of an attempt whose worker fell silent, or was ``seen`` to have died.

    Without a crash budget a crash is an attempt like any other; with one it is counted apart.
    """
    crashes = job.crashes + 1
    over = job.attempts >= job.max_attempts if job.max_crashes is None else crashes >= job.max_crashes
    who = "crash" if seen else "reaper"
    if over:
        then = after_failure(job, failure)
        return failed(job.lease, failure, event=f"{who}:failed({failure.code})", crashed=True, then=then)
    which = job.attempts if job.max_crashes is None else crashes
    delay = backoff(job.lapse_backoff, which, jitter * JITTER)
    return retried(job.lease, failure, delay, event=f"{who}:requeued", crashed=True)


def expired_fate(job: Job) -> Outcome:
    """The outcome of a job that was not started in time."""
    message = f"it was not started before {job.expires_at:%Y-%m-%d %H:%M:%S} UTC, when it expired"
    failure = Failure(Category.PERMANENT, EXPIRED, message)
    return expired(job.lease, failure, then=after_failure(job, failure))


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


def backoff(steps: Sequence[float], attempt: int, more: float = 0.0) -> float:
    """Seconds to wait after the given attempt (from 1); the last step repeats, no steps means no wait.

    ``more`` is the share of itself by which the wait is lengthened, or shortened if it is negative.
    """
    if not steps:
        return 0.0
    step = steps[min(max(attempt, 1), len(steps)) - 1]
    return step * (1.0 + more)


def _silence(job: Job) -> Failure:
    sent = (
        "never sent a heartbeat"
        if job.heartbeat_at is None
        else f"sent its last heartbeat at {job.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC"
    )
    message = f"{_holder(job)} {sent}, and its lease ran out"
    return _crash(job, "timeout", "lease_expired", message, job.owner or "", _last_seen(job))


def _death(job: Job, cause: str) -> Failure:
    message = f"{_holder(job)} died: {cause}"
    return _crash(job, "crashed", cause, message, job.owner or "", _last_seen(job))


def _holder(job: Job) -> str:
    return f"worker {job.owner}" if job.owner else "a worker without a name"


def _last_seen(job: Job) -> dict[str, Any]:
    """What is known about a worker that fell silent or died; enough to find it."""
    return {
        "owner": job.owner,
        "lease_until": None if job.lease_until is None else job.lease_until.isoformat(),
        "heartbeat_at": None if job.heartbeat_at is None else job.heartbeat_at.isoformat(),
        "stage": job.stage,
        "attempts": job.attempts,
        "crashes": job.crashes + 1,
    }


def _crash(job: Job, code: str, reason: str, message: str, worker: str, details: dict[str, Any]) -> Failure:
    return Failure(
        category=Category.TRANSIENT,
        code=code,
        reason=reason,
        message=message,
        attempt=job.attempts,
        worker=worker,
        details=details,
    )
