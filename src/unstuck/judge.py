"""judge(): what becomes of a job whose worker fell silent or died, with what is known about it."""

from __future__ import annotations

from unstuck.model import Category, Failure, Job, Outcome
from unstuck.retry import crash_fate


def judge(job: Job, of: str | None = None, cause: str = "", *, jitter: float = 0.0) -> Outcome:
    """What becomes of a job whose lease ran out, or whose worker ``of`` died of ``cause``."""
    failure = _silence(job) if of is None else _death(job, cause)
    return crash_fate(job, failure, seen=of is not None, jitter=jitter)


def _silence(job: Job) -> Failure:
    heard = "never" if job.heartbeat_at is None else f"last at {job.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC"
    return _crash(job, "timeout", "lease_expired", f"{_holder(job)} was heard {heard}, and its lease ran out")


def _death(job: Job, cause: str) -> Failure:
    return _crash(job, "crashed", cause, f"{_holder(job)} died: {cause}")


def _holder(job: Job) -> str:
    return f"worker {job.owner}" if job.owner else "a worker without a name"


def _crash(job: Job, code: str, reason: str, message: str) -> Failure:
    """What is known about a worker that fell silent or died; enough to find it."""
    return Failure(
        category=Category.TRANSIENT,
        code=code,
        reason=reason,
        message=message,
        attempt=job.attempts,
        worker=job.owner or "",
        details={
            "owner": job.owner,
            "lease_until": None if job.lease_until is None else job.lease_until.isoformat(),
            "heartbeat_at": None if job.heartbeat_at is None else job.heartbeat_at.isoformat(),
            "stage": job.stage,
            "attempts": job.attempts,
            "crashes": job.crashes + 1,
        },
    )
