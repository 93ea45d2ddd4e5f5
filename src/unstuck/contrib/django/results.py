"""A job as Django's TaskResult."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings
from django.tasks.base import Task, TaskError, TaskResult, TaskResultStatus
from django.utils import timezone
from django.utils.module_loading import import_string

from unstuck import Event, Failure, Job, Status

_STATUS = {
    Status.PENDING: TaskResultStatus.READY,
    Status.PROCESSING: TaskResultStatus.RUNNING,
    Status.COMPLETED: TaskResultStatus.SUCCESSFUL,
    Status.FAILED: TaskResultStatus.FAILED,
}
NO_EXCEPTION = "unstuck.JobFailed"  # what stands for the end of an attempt in which nothing was raised


class Wanted(msgspec.Struct, kw_only=True):
    """What a job's payload says: which function, with what, and how its task was set up."""

    path: str
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    priority: int = 0
    run_after: datetime | None = None

    def task(self, queue: str) -> Task:
        found = import_string(self.path)
        if not isinstance(found, Task):
            why = f"{self.path} is no task of Django's: decorate it with @task"
            raise ImportError(why)  # noqa: TRY004 - as if it were not there
        return found.using(
            priority=self.priority, queue_name=queue, run_after=local(self.run_after), backend=self.backend
        )


class Returned(msgspec.Struct):
    """What is stored as a job's result: the worker's name is known to Django only from here."""

    value: Any
    worker: str


def task_result(job: Job, events: Sequence[Event] = ()) -> TaskResult:
    """``events`` are about the attempts before the last."""
    said = msgspec.convert(job.payload["wanted"], Wanted)
    returned = _returned(job) if job.status is Status.COMPLETED else None
    workers, errors = _history(job, events, returned)
    result = TaskResult(
        task=said.task(job.queue),
        id=job.id,
        status=_STATUS[job.status],
        enqueued_at=local(job.created_at),
        started_at=local(job.started_at),
        finished_at=local(job.finished_at),
        last_attempted_at=local(job.started_at),
        args=said.args,
        kwargs=said.kwargs,
        backend=said.backend,
        errors=errors,
        worker_ids=workers,
    )
    if returned is not None:
        object.__setattr__(result, "_return_value", returned.value)
    return result


def _returned(job: Job) -> Returned:
    """Anything else, such as the note that a result was too large to be kept, is returned as it is."""
    try:
        return msgspec.convert(job.result, Returned)
    except msgspec.ValidationError:
        return Returned(job.result, "")


def _history(
    job: Job, events: Sequence[Event], returned: Returned | None
) -> tuple[list[str], list[TaskError]]:
    """Who worked on it and what they met, attempt by attempt, since it was enqueued or put back last."""
    workers: dict[int, str] = {}
    errors: dict[int, TaskError] = {}
    for event in events:
        if event.type in {"requeued", "enqueued"}:
            workers, errors = {}, {}
        details = event.data.get("details", {})
        if event.type != "alert" and (attempt := details.get("attempt")):
            workers[attempt] = details.get("worker", "")
            errors[attempt] = TaskError(
                exception_class_path=details.get("exception", NO_EXCEPTION),
                traceback=details.get("message", ""),
            )
    if job.owner is not None or returned is not None:
        workers[job.attempts] = job.owner or (returned.worker if returned else "")
    if job.error is not None and job.error.code == "cancelled":
        errors[job.attempts + 1] = _error(job.error)
    elif job.error is not None and job.error.attempt:
        workers[job.error.attempt] = job.error.worker
        errors[job.error.attempt] = _error(job.error)
    names = [workers.get(attempt, "") for attempt in range(1, job.attempts + 1)]
    return names, [errors[attempt] for attempt in sorted(errors)]


def _error(failure: Failure) -> TaskError:
    path = failure.details.get("exception", NO_EXCEPTION)
    return TaskError(exception_class_path=path, traceback=failure.stack or failure.message)


def local(when: datetime | None) -> datetime | None:
    """As Django has times: without a zone where USE_TZ is off."""
    if when is None or settings.USE_TZ or when.tzinfo is None:
        return when
    naive: datetime = timezone.make_naive(when)
    return naive
