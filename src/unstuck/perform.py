"""perform(): run one leased job and say how its lease shall end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from unstuck.classify import classify, failure
from unstuck.context import Context
from unstuck.errors import PayloadError
from unstuck.handler import Handler
from unstuck.model import Category, Job, Json, Outcome, Status, completed, failed, released
from unstuck.payload import LIMIT, encode
from unstuck.retry import fate
from unstuck.runners import Runner

log = logging.getLogger("unstuck.worker")
Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
_LEVEL = {
    Category.TRANSIENT: logging.WARNING,
    Category.PERMANENT: logging.ERROR,
    Category.CRITICAL: logging.CRITICAL,
}


async def perform(handler: Handler | None, context: Context, runner: Runner, worker: str) -> Outcome:
    """Raises CancelledError only if the worker itself cancelled it."""
    job = context.job
    if handler is None:
        return _unknown(job)
    try:
        arguments = handler.arguments.unpack(job.payload)
    except Exception as error:  # noqa: BLE001 - models run code of their own
        return _failed(job, error, "invalid_payload", worker)
    try:
        result = await runner(handler.function, arguments, context)
    except asyncio.CancelledError:
        if context.cancelled:
            raise
        return _failed(
            job, asyncio.CancelledError("the handler cancelled itself"), "cancelled_itself", worker
        )
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is the job's failure, not the worker's
        return _judge(job, error, worker)
    try:
        return completed(job.lease, _result(result, job), then=_follow_ups(context))
    except Exception as error:  # noqa: BLE001 - as above
        return _failed(job, error, "invalid_result", worker)


def _judge(job: Job, error: BaseException, worker: str) -> Outcome:
    found = classify(error)
    outcome = fate(
        job,
        failure(error, attempt=job.attempts, worker=worker),
        delay=found.delay,
        jitter=random.random(),  # noqa: S311 - not a secret
    )
    _tell(job, outcome)
    return outcome


def _failed(job: Job, error: BaseException, code: str, worker: str) -> Outcome:
    """Failed for good, whatever the error would mean elsewhere."""
    why = failure(error, attempt=job.attempts, worker=worker)
    outcome = failed(job.lease, msgspec.structs.replace(why, category=Category.PERMANENT, code=code))
    _tell(job, outcome)
    return outcome


def _unknown(job: Job) -> Outcome:
    """A worker of an older release may simply not know the task yet: give it back, later and later."""
    waited = (job.started_at - job.created_at).total_seconds() if job.started_at else 0.0
    delay = min(max(waited, 1.0), 300.0)
    log.warning(
        "task %s is not known here: job given back for %.0f s", job.task, delay, extra={"jobId": job.id}
    )
    return released(job.lease, delay, why=f"task {job.task!r} is unknown to this worker")


def _result(result: Any, job: Job) -> Json:
    if result is None:
        return None
    try:
        return msgspec.Raw(encode(result, "the handler's result"))
    except PayloadError as error:
        if error.size is None:
            raise
        # The work is done; a result nobody can store is no reason to do it again.
        log.warning("job %s: %s", job.id, error, extra={"jobId": job.id})
        return {"unstuck": "result dropped", "bytes": error.size, "limit": LIMIT}


def _follow_ups(context: Context) -> tuple[Any, ...]:
    return tuple(msgspec.structs.replace(call.job, parent=context.job.id) for call in context.follow_ups)


def _tell(job: Job, outcome: Outcome) -> None:
    if (why := outcome.failure) is None:
        return
    then = "failed" if outcome.status is Status.FAILED else f"will be tried again in {outcome.delay:.1f} s"
    log.log(
        _LEVEL[why.category],
        "job %s (%s) %s: %s",
        job.id,
        job.task,
        then,
        why.message,
        extra={
            "jobId": job.id,
            "queue": job.queue,
            "task": job.task,
            "errorType": why.category,
            "code": why.code,
            "attempt": job.attempts,
            "maxAttempts": job.max_attempts,
            "stack": why.stack,
            "workerId": why.worker,
        },
    )
