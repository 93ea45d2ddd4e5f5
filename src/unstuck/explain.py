"""explain(): why a job is not running, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from unstuck.health import alive
from unstuck.model import Job, Status, Worker
from unstuck.store import Counts, Store


async def explain(store: Store, job: Job) -> str:
    now = (await store.clock()).now
    match job.status:
        case Status.COMPLETED:
            return f"It completed {_ago(job.finished_at, now)}."
        case Status.FAILED if job.cancelled:
            return f"It was cancelled {_ago(job.finished_at, now)}."
        case Status.FAILED:
            cause = f"{job.error.code}: {job.error.message}" if job.error else "no error was recorded"
            spent = f"{job.attempts} of {job.max_attempts} attempts"
            return f"It failed {_ago(job.finished_at, now)} after {spent} ({cause})."
        case Status.PROCESSING:
            return _held(job, now)
        case Status.PENDING:
            return await _waiting(store, job, now)


async def _waiting(store: Store, job: Job, now: datetime) -> str:
    counts = next((of for of in await store.count() if of.queue == job.queue), Counts(queue=job.queue))
    if counts.paused is not None:
        return f"Queue {job.queue!r} is paused: {counts.paused}. Resume it with: unstuck resume {job.queue}"
    if (left := (job.run_at - now).total_seconds()) > 0:
        again = f" (attempt {job.attempts} failed: {job.error.code})" if job.error and job.attempts else ""
        return f"It is due in {left:.1f} s, at {job.run_at:%Y-%m-%d %H:%M:%S} UTC{again}."
    workers = [worker for worker in alive(await store.workers(), now) if job.queue in worker.queues]
    if not workers:
        return f"No worker takes queue {job.queue!r}: start one that does."
    if not any(job.task in worker.tasks for worker in workers):
        return (
            f"Task {job.task!r} is unknown to every worker of queue {job.queue!r}: deploy its code to them."
        )
    if limited := await _limited(store, job, counts, workers):
        return limited
    if before := await store.place(job.ref):
        return f"It waits behind {before} other due jobs of queue {job.queue!r}."
    return f"It is the next of queue {job.queue!r} and waits for a free worker."


async def _limited(store: Store, job: Job, counts: Counts, workers: Sequence[Worker]) -> str:
    """What limit keeps a due job waiting, if one does. The workers know the limits, not the store."""
    limits = next((worker.limits[job.queue] for worker in workers if job.queue in worker.limits), {})
    if (rate := limits.get("rate")) is not None:
        bucket = await store.bucket(rate["bucket"] or job.queue)
        wait = max(bucket.closed_for, bucket.first_back if bucket.out >= rate["count"] else 0.0)
        if wait > 0:
            told = f"{rate['count']} in {rate['per']:g} s"
            return f"Queue {job.queue!r} is rate limited ({told}) for another {wait:.1f} s."
    if (most := limits.get("limit")) is not None and counts.processing >= most:
        return f"Queue {job.queue!r} runs at most {most} jobs at a time, and so many are running."
    return ""


def _held(job: Job, now: datetime) -> str:
    if job.lease_until is None:
        return f"It is held by {job.owner}, which sets no lease."
    left = (job.lease_until - now).total_seconds()
    if left > 0:
        return f"It is running: held by {job.owner} for another {left:.1f} s unless renewed."
    return f"Its lease by {job.owner} ran out {-left:.1f} s ago; the next reaper will take it back."


def _ago(when: datetime | None, now: datetime) -> str:
    return "at an unknown time" if when is None else f"{max(0.0, (now - when).total_seconds()):.1f} s ago"
