"""What a task enqueues when one of its jobs ends: the tasks given as ``on_success`` and ``on_failure``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from unstuck.app.call import Call
from unstuck.config.checks import shown
from unstuck.protocol.errors import ConfigError, PayloadError
from unstuck.protocol.ids import follow_up_id
from unstuck.protocol.job import Category, Failure, FollowUp, Job, Json, NewJob

if TYPE_CHECKING:
    from unstuck.app.app import Unstuck
    from unstuck.app.task import Task

AfterSuccess = Callable[[Job, Json], NewJob]
_SAMPLE = "id", "task", Failure(Category.PERMANENT, "code", "message")


class OnSuccess(Protocol):
    """A task, perhaps with options, that takes the result of another one."""

    def call(self, result: Any, /) -> Call[Any]: ...


class OnFailure(Protocol):
    """A task, perhaps with options, that takes the id, the task and the failure of a job that failed for good."""

    def call(self, id: str, task: str, failure: Failure, /) -> Call[Any]: ...


def after_success(app: Unstuck, task: str, given: OnSuccess | None) -> AfterSuccess | None:
    """How the job that follows a success is made of the job that succeeded and its result."""
    if given is None:
        return None
    follower = _follower(app, task, "on_success", given)
    _must_take(follower, f"on_success of task {task!r}", "the result", None)

    def follow(job: Job, result: Json) -> NewJob:
        value = msgspec.json.decode(result) if isinstance(result, msgspec.Raw) else result
        made = follower.call(value).job
        id_ = follow_up_id("on_success", job.lease, made.queue, made.task)
        return msgspec.structs.replace(made, id=id_, parent=job.id, trace=made.trace or job.trace)

    return follow


def after_failure(app: Unstuck, task: str, given: OnFailure | None) -> Task[Any, Any] | None:
    """The task that follows a final failure, checked."""
    if given is None:
        return None
    follower = _follower(app, task, "on_failure", given)
    whose = f"on_failure of task {task!r}"
    _must_take(follower, whose, "the id, the task and the failure", *_SAMPLE)
    try:
        follower.call(*_SAMPLE)
    except PayloadError as error:
        raise ConfigError(
            f"{whose} takes a job's id and its task, each a str, and its unstuck.Failure: {error}"
        ) from None
    return follower


def carried(follower: Task[Any, Any], pattern: NewJob) -> FollowUp:
    """What a job carries of the task that follows its failure, so that a reaper without the app can enqueue it."""
    one, two, three = follower.handler.arguments.names[:3]
    return FollowUp(
        queue=pattern.queue,
        task=pattern.task,
        names=(one, two, three),
        priority=pattern.priority,
        delay=pattern.delay,
        max_attempts=pattern.max_attempts,
        max_crashes=pattern.max_crashes,
        backoff=pattern.backoff,
        lapse_backoff=pattern.lapse_backoff,
        timeout=pattern.timeout,
        lane=pattern.lane,
        expires=None if isinstance(pattern.expires, datetime) else pattern.expires,
        on_failure=pattern.on_failure,
    )


def _follower(app: Unstuck, task: str, option: str, given: Any) -> Task[Any, Any]:
    from unstuck.app.task import Task

    if not isinstance(given, Task):
        raise ConfigError(
            f"{option} of task {task!r} is {shown(given)}: it must be a task, declared before with @app.task"
        )
    if given.app is not app:
        raise ConfigError(
            f"{option} of task {task!r} is a task of another app: its job is added in the same store"
        )
    pattern = given.pattern()
    if pattern.key is not None or pattern.run_at is not None or isinstance(pattern.expires, datetime):
        raise ConfigError(
            f"{option} of task {task!r} has a key or a fixed time, and its jobs are one for each ending: give it neither"
        )
    return given


def _must_take(follower: Task[Any, Any], whose: str, what: str, *arguments: Any) -> None:
    try:
        follower.handler.arguments.signature.bind(*arguments)
    except TypeError as error:
        raise ConfigError(
            f"{whose} must take {what}, in this order: task {follower.name!r}: {error}"
        ) from None
