"""Handler: the function behind a task, inspected before it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import (
    isasyncgenfunction,
    isawaitable,
    isclass,
    iscoroutine,
    iscoroutinefunction,
    isgeneratorfunction,
)
from typing import Any

from unstuck.app.dependencies import Needs
from unstuck.app.payload import Arguments, Result
from unstuck.config.checks import LONGEST_LEASE, number
from unstuck.protocol.classify import TaskErrors
from unstuck.protocol.errors import ConfigError, Permanent
from unstuck.protocol.job import Job, Json, NewJob
from unstuck.text.durations import Seconds
from unstuck.text.phrases import counted


class Handler:
    """Made once, when the task is registered.

    ``batch`` is the number of jobs one call may get, 0 for a function that gets one job's arguments.
    ``stall`` is how many seconds a running job may go without a progress update. ``strict``: no job's payload
    may have a field that the function does not take, not even one that another system enqueued. ``errors``: those that
    are tried again, or never, when this function raises them.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        task: str,
        *,
        batch: int = 0,
        isolate: bool = False,
        stall: Seconds | None = None,
        strict: bool = False,
        errors: TaskErrors = TaskErrors(),  # noqa: B008 - immutable
    ) -> None:
        self.task = task
        self.errors = errors
        self.middlewares: Sequence[Callable[..., Any]] = ()  # of this task alone
        self.after_success: Callable[[Job, Json], NewJob] | None = None
        self.function = function
        if isclass(function):
            raise ConfigError(f"task {task!r} is a class: make a task of a function, which may use the class")
        self.needs = Needs(function, f"task {task!r}")
        self.arguments = Arguments(function, task, each=batch > 0, without=self.needs.parameters)
        self.result = Result(function, each=batch > 0)
        self.is_async = iscoroutinefunction(function)
        self.batch = batch
        self.isolate = isolate
        self.strict = strict
        self.stall = None if stall is None else number("stall", stall, 0.05, LONGEST_LEASE)
        if isasyncgenfunction(function) or isgeneratorfunction(function):
            raise ConfigError(f"task {task!r} yields, and a job has one result: return it")
        if isolate and batch:
            raise ConfigError(f"task {task!r} cannot be both a batch and isolated: choose one")
        if isolate and (hidden := self.hidden):
            raise ConfigError(
                f"task {task!r} cannot be isolated: {hidden} is not at module level, where the child process could import it"
            )

    def ignored(self, job: Job) -> list[str]:
        """The fields of a job's payload that the function does not take and the job may have all the same."""
        if not job.foreign or self.strict or not isinstance(job.payload, dict):
            return []
        return [name for name in job.payload if name not in self.arguments.names]

    def read(self, job: Job) -> dict[str, Any]:
        """The job's payload as arguments of the function; raises PayloadError if they do not fit."""
        payload = job.payload
        if job.foreign and isinstance(payload, dict) and (ignored := self.ignored(job)):
            payload = {name: value for name, value in payload.items() if name not in ignored}
        return self.arguments.unpack(payload)

    def answer(self, result: Any) -> Any:
        """The result of a plain function; refuses an awaitable, which nobody would await."""
        if not isawaitable(result):
            return result
        if iscoroutine(result):
            result.close()
        name = self.location[1] or self.task
        raise Permanent(f"{name} is not a coroutine function but returned an awaitable: make it 'async def'")

    def answers(self, result: Any, jobs: int) -> Sequence[Any]:
        """The results of a batch, one for each job; refuses anything else."""
        if not isinstance(result, Sequence) or isinstance(result, str | bytes | bytearray):
            kind = type(result).__name__
            raise Permanent(
                f"the batch handler returned a {kind}: a list with one answer for each job is needed"
            )
        if len(result) != jobs:
            got, returned = counted(jobs, "job"), counted(len(result), "answer")
            raise Permanent(f"the batch handler got {got} and returned {returned}: one for each is needed")
        return result

    @property
    def location(self) -> tuple[str, str]:
        """The module and the name under which another process finds the function."""
        return location(self.function)

    @property
    def hidden(self) -> str:
        """What another process could not find, if there is anything."""
        if not _findable(self.function):
            return f"its function {self.location[1]!r}"
        named = (*self.errors.on, *self.errors.never)
        return next((f"its error {kind.__qualname__!r}" for kind in named if not _findable(kind)), "")


def location(what: Callable[..., Any]) -> tuple[str, str]:
    """The module and the name of a function or a class."""
    return getattr(what, "__module__", "") or "", getattr(what, "__qualname__", "") or ""


def _findable(what: Callable[..., Any]) -> bool:
    module, name = location(what)
    return bool(module) and bool(name) and "<" not in name
