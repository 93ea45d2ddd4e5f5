"""What workers run: one handler for all of Django's tasks that are plain functions, and one for coroutines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import django
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections
from django.tasks import task_backends
from django.tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
from django.tasks.signals import task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json

from unstuck import ConfigError, Job, Permanent, Snooze, Status, Unstuck, classify, current_job
from unstuck.contrib.django.results import Returned, Wanted, task_result
from unstuck.protocol.classify import failure
from unstuck.protocol.retry import fate

SYNC, ASYNC = "django", "django_async"


def run(wanted: Wanted) -> Returned:
    """In a thread of the worker's, which has connections of its own to Django's databases."""
    close_old_connections()
    try:
        result, job = _begun(wanted)
        try:
            value = result.task.call(*_context(result), *result.args, **result.kwargs)
            return _returned(result, job, value)
        except BaseException as error:
            _failed(result, job, error)
            raise
    finally:
        close_old_connections()


async def run_async(wanted: Wanted) -> Returned:
    """On the worker's event loop; what is not asynchronous in Django gets a thread for each job, as for requests."""
    async with ThreadSensitiveContext():
        try:
            result, job = await _aside(partial(_begun, wanted))
            try:
                value = await result.task.acall(*_context(result), *result.args, **result.kwargs)
                returned: Returned = await _aside(partial(_returned, result, job, value))
            except BaseException as error:
                await _aside(partial(_failed, result, job, error))
                raise
            return returned
        finally:
            await _aside(connections.close_all)  # the thread ends with this job


async def _aside(function: Callable[[], Any]) -> Any:
    return await sync_to_async(function, thread_sensitive=True)()


def _begun(wanted: Wanted) -> tuple[TaskResult, Job]:
    if not apps.ready:
        django.setup()  # a process of its own, for a job that crashed before
    context = current_job()
    context.bind(operation=wanted.path)
    result = task_result(context.job)
    task_started.send(_backend(result), task_result=result)
    return result, context.job


def _context(result: TaskResult) -> tuple[Any, ...]:
    return (TaskContext(task_result=result),) if result.task.takes_context else ()


def _returned(result: TaskResult, job: Job, value: Any) -> Returned:
    try:
        plain = normalize_json(value)
    except (TypeError, ValueError) as error:
        raise Permanent(f"the task returned what JSON cannot say: {error}", code="invalid_result") from error
    object.__setattr__(result, "_return_value", plain)
    _end(result, TaskResultStatus.SUCCESSFUL)
    return Returned(plain, job.owner or "")


def _failed(result: TaskResult, job: Job, error: BaseException) -> None:
    """Django is notified of a failure that is final; one that leads to another attempt is none yet."""
    errors = result.task.get_backend().app.tasks[job.task].handler.errors
    found = classify(error, errors)
    why = failure(error, errors, attempt=job.attempts)
    if isinstance(error, Snooze) or found.refusal is not None or fate(job, why).status is not Status.FAILED:
        return
    result.errors.append(TaskError(exception_class_path=str(why.details["exception"]), traceback=why.stack))
    _end(result, TaskResultStatus.FAILED)


def _end(result: TaskResult, status: Any) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
    task_finished.send_robust(
        _backend(result), task_result=result
    )  # the work is done, whatever a receiver says


def _backend(result: TaskResult) -> type:
    return type(task_backends[result.backend])


def the_app() -> Unstuck:
    """The app of the first backend in TASKS that is ours, "default" before all others."""
    from unstuck.contrib.django.backend import UnstuckBackend

    try:
        django.setup()
        aliases = sorted(settings.TASKS, key=lambda alias: alias != "default")
        ours = [task_backends[alias] for alias in aliases if isinstance(task_backends[alias], UnstuckBackend)]
    except (ImproperlyConfigured, ImportError) as error:
        raise ConfigError(f"Django's settings cannot be used: {error}") from error
    if not ours:
        raise ConfigError(
            "none of TASKS in Django's settings has the BACKEND unstuck.contrib.django.UnstuckBackend"
        )
    app: Unstuck = ours[0].app
    return app
