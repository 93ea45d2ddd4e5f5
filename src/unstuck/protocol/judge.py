"""judge(): what becomes of a job whose worker fell silent or died, or whose own process died, with what is known about it."""

from __future__ import annotations

from typing import Any

from unstuck.protocol.job import Category, Failure, Job
from unstuck.protocol.outcome import Outcome
from unstuck.protocol.retry import crash_fate


def judge(job: Job, of: str | None = None, cause: str = "", *, jitter: float = 0.0) -> Outcome:
    """What becomes of a job whose lease ran out, or whose worker ``of`` died of ``cause``."""
    failure = _silence(job) if of is None else _death(job, cause)
    return crash_fate(job, failure, seen=of is not None, jitter=jitter)


def judge_child(job: Job, cause: str, message: str, *, pid: int, worker: str, jitter: float = 0.0) -> Outcome:
    """What becomes of a job whose own process died of ``cause``, while its worker lives."""
    failure = _crash(job, "crashed", cause, message, worker, {"pid": pid, "cause": cause})
    return crash_fate(job, failure, seen=True, jitter=jitter)


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
