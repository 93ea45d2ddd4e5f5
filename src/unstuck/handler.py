"""Handler: the function behind a task, and what is known of it before it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from inspect import (
    isasyncgenfunction,
    isawaitable,
    isclass,
    iscoroutine,
    iscoroutinefunction,
    isgeneratorfunction,
)
from typing import Any

from unstuck.errors import ConfigError, Permanent
from unstuck.payload import Arguments, Result
from unstuck.policy import number, shown
from unstuck.seconds import Seconds
from unstuck.wording import counted

LONGEST = 7 * 86400.0


def must_be_a_lifespan(function: Any) -> None:
    """Refuse what is known not to return an asynchronous context manager when it is called."""
    if isasyncgenfunction(function) or isgeneratorfunction(function) or iscoroutinefunction(function):
        what = "yields and is" if not iscoroutinefunction(function) else "is"
        wanted = "an async def that yields once, under @app.lifespan and @asynccontextmanager"
        raise ConfigError(
            f"lifespan {function.__qualname__!r} {what} no asynchronous context manager: write {wanted}"
        )
    if isinstance(function, AbstractAsyncContextManager) or not callable(function):
        raise ConfigError(f"lifespan is {shown(function)}: give the function itself, without calling it")


class Handler:
    """Worked out once, when the task is registered.

    ``batch`` is the number of jobs one call may get, 0 for a function that gets one job's arguments.
    ``stall`` is for how many seconds a running job may go without a word of progress.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        task: str,
        *,
        batch: int = 0,
        isolate: bool = False,
        stall: Seconds | None = None,
    ) -> None:
        self.task = task
        self.function = function
        if isclass(function):
            raise ConfigError(f"task {task!r} is a class: make a task of a function, which may use the class")
        self.arguments = Arguments(function, task, each=batch > 0)
        self.result = Result(function, each=batch > 0)
        self.is_async = iscoroutinefunction(function)
        self.batch = batch
        self.isolate = isolate
        self.stall = None if stall is None else number("stall", stall, 0.05, LONGEST)
        if isasyncgenfunction(function) or isgeneratorfunction(function):
            raise ConfigError(f"task {task!r} yields, and a job has one result: return it")
        if isolate and batch:
            raise ConfigError(f"task {task!r} cannot be both a batch and isolated: choose one")
        if isolate and not self.importable:
            raise ConfigError(
                f"task {task!r} cannot be isolated: its function {self.place[1]!r} is not at module level, "
                "where the child process could import it"
            )

    def answer(self, result: Any) -> Any:
        """What a plain function returned; refuses what somebody would have to await."""
        if not isawaitable(result):
            return result
        if iscoroutine(result):
            result.close()
        told = f"{self.place[1] or self.task} is no coroutine function but returned an awaitable"
        raise Permanent(f"{told}: make it 'async def'")

    def answers(self, result: Any, jobs: int) -> Sequence[Any]:
        """What a batch returned, one for each job; refuses anything else."""
        if not isinstance(result, Sequence) or isinstance(result, str | bytes | bytearray):
            told = f"returned a {type(result).__name__}: a list with one answer for each job is needed"
            raise Permanent(f"the batch handler {told}")
        if len(result) != jobs:
            told = f"got {counted(jobs, 'job')} and returned {counted(len(result), 'answer')}"
            raise Permanent(f"the batch handler {told}: one for each is needed")
        return result

    @property
    def place(self) -> tuple[str, str]:
        """Module and name under which another process finds the function."""
        function = self.function
        return getattr(function, "__module__", "") or "", getattr(function, "__qualname__", "") or ""

    @property
    def importable(self) -> bool:
        module, name = self.place
        return bool(module) and bool(name) and "<" not in name
