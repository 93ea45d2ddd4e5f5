"""new_job(): the one place where a job is made, whether a task is called in code or named by an interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import Raw, json, structs

from unstuck.config.checks import queue_name, shown, task_name
from unstuck.config.job_options import Options
from unstuck.config.retry import Retry, retry_policy
from unstuck.protocol.errors import ConfigError, PayloadError
from unstuck.protocol.ids import digest, keyed_id, new_id, slot_key
from unstuck.protocol.job import Json, NewJob
from unstuck.protocol.json_text import encode
from unstuck.text.phrases import near


class RegisteredTask(Protocol):
    """A task of an app, as an interface enqueues it: by name, with arguments from JSON."""

    def new_job(self, arguments: Mapping[str, Json], options: Options) -> NewJob:
        """A job of this task, with its own queue and policy; a PayloadError if the arguments do not fit it."""
        ...


def new_job(pattern: NewJob, payload: Raw, *, trace: str | None = None) -> NewJob:
    """Complete a pattern, which has the task, its policy and the options of this job, with an id and the payload."""
    if pattern.expires is not None:
        _can_start(pattern)
    if pattern.key is None:
        return structs.replace(pattern, id=new_id(), payload=payload, trace=trace)
    return structs.replace(
        pattern,
        id=new_id() if pattern.interval else keyed_id(pattern.queue, pattern.key),
        payload=payload,
        digest=digest(pattern.task, bytes(payload)),
        delay=pattern.debounce or pattern.delay,
        trace=trace,
    )


def job_of_slot(pattern: NewJob, schedule: str, slot: datetime) -> NewJob:
    """The job that a schedule enqueues for a slot; every process gives it the same key and id."""
    key = slot_key(schedule, slot)
    content = digest(pattern.task, json.encode(pattern.payload))
    # A slot that comes again, because the clock was put back, starts its finished job over.
    return structs.replace(pattern, key=key, id=keyed_id(pattern.queue, key), digest=content, again=True)


def _can_start(pattern: NewJob) -> None:
    """Refuse a job that expires before it is due, or whose time is moved by later calls."""
    if pattern.debounce is not None:
        raise ConfigError("debounce moves the time of a job, and expires ends it: give one of them")
    expires, run_at, delay = pattern.expires, pattern.run_at, pattern.delay
    if expires is None or (run_at is None and not delay):
        return
    now = datetime.now(UTC)
    ends = expires if isinstance(expires, datetime) else now + timedelta(seconds=expires)
    if ends <= (run_at or now + timedelta(seconds=delay)):
        time = str(expires) if isinstance(expires, datetime) else f"{expires:g} s"
        due = f"delay {delay:g} s" if run_at is None else f"run_at {run_at}"
        raise ConfigError(
            f"expires is {time} and {due}: the job would expire before it is due, so let it expire later"
        )


def job_by_name(
    tasks: Mapping[str, RegisteredTask],
    task: str,
    arguments: Mapping[str, Json],
    options: Options,
    *,
    queue: str | None = None,
    retry: Retry | int | None = None,
) -> NewJob:
    """A job of one of these tasks, or of any other, of which only the name is known: workers of the queue have its code."""
    if not isinstance(arguments, Mapping):
        raise PayloadError(
            f"arguments are {shown(arguments)}: they must be a JSON object, with the name of each argument"
        )
    if (registered := tasks.get(task)) is not None:
        if queue is not None or retry is not None:
            which = "queue" if queue is not None else "retry"
            raise ConfigError(f"task {task!r} is registered with its own {which}: leave {which} out")
        return registered.new_job(arguments, options)
    if tasks and queue is None:
        hint = near(str(task), tasks) or f"it has {', '.join(sorted(tasks))}"
        raise ConfigError(f"the app has no task {shown(task)} ({hint}); to enqueue it anyway, name its queue")
    tries = retry_policy(retry).of_a_job()
    pattern = NewJob(
        queue=queue_name("default" if queue is None else queue),
        task=task_name(task),
        id="",
        max_attempts=tries.attempts,
        backoff=tries.backoff,
    )
    return new_job(structs.replace(pattern, **asdict(options)), Raw(encode(arguments, "payload")))
