"""Handler: the function behind a task, and what is known of it before it is called."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isasyncgenfunction, isawaitable, iscoroutine, iscoroutinefunction, isgeneratorfunction
from typing import Any

from unstuck.errors import ConfigError, Permanent
from unstuck.payload import Arguments, Result
from unstuck.policy import number, whole

LONGEST = 7 * 86400.0


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
        stall: float | None = None,
    ) -> None:
        self.task = task
        self.function = function
        self.arguments = Arguments(function, task, each=batch > 0)
        self.result = Result(function, each=batch > 0)
        self.is_async = iscoroutinefunction(function)
        self.batch = whole("batch size", batch, 0, 10_000)
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

    @property
    def place(self) -> tuple[str, str]:
        """Module and name under which another process finds the function."""
        function = self.function
        return getattr(function, "__module__", "") or "", getattr(function, "__qualname__", "") or ""

    @property
    def importable(self) -> bool:
        module, name = self.place
        return bool(module) and bool(name) and "<" not in name
