"""Functions of an application that run around a worker's life and around each job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
)
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from unstuck.app.call import Call
from unstuck.app.context import Context
from unstuck.config.checks import shown
from unstuck.protocol.errors import ConfigError, UnstuckError

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]
Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]

AroundEnqueue = Callable[[Sequence[Call[Any]]], AbstractContextManager[Any]]

_ALONE = nullcontext()


def middleware_of(task: str, given: Any) -> tuple[Middleware, ...]:
    """The middleware of one task, as a list of functions."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(map(callable, given)):
        raise ConfigError(
            f"middleware of task {task!r} is {shown(given)}: it must be a list of functions, each as for @app.middleware"
        )
    return tuple(given)


def check_around_enqueue(function: Any) -> None:
    """Refuse a function that certainly returns no context manager."""
    if isgeneratorfunction(function) or isasyncgenfunction(function) or iscoroutinefunction(function):
        raise ConfigError(
            f"around_enqueue {function.__qualname__!r} is not a context manager: write a def that yields once, under "
            "@app.around_enqueue and @contextmanager"
        )
    if isinstance(function, AbstractContextManager) or not callable(function):
        raise ConfigError(
            f"around_enqueue is {shown(function)}: give the function itself, without calling it"
        )


def enqueueing(around: Sequence[AroundEnqueue], calls: Sequence[Call[Any]]) -> AbstractContextManager[None]:
    """Inside of all of them; the first one is the outermost."""
    return _inside(around, calls) if around else _ALONE


@contextmanager
def _inside(around: Sequence[AroundEnqueue], calls: Sequence[Call[Any]]) -> Iterator[None]:
    stored = False
    with ExitStack() as stack:
        for each in around:
            stack.enter_context(each(calls))
        yield
        stored = True
    if not stored:
        raise UnstuckError(
            "an around_enqueue swallowed an error, so that there are no handles: let errors pass"
        )


def check_lifespan(function: Any) -> None:
    """Refuse a function that certainly returns no asynchronous context manager."""
    if isasyncgenfunction(function) or isgeneratorfunction(function) or iscoroutinefunction(function):
        what = "is not" if iscoroutinefunction(function) else "yields and is not"
        wanted = "an async def that yields once, under @app.lifespan and @asynccontextmanager"
        raise ConfigError(
            f"lifespan {function.__qualname__!r} {what} an asynchronous context manager: write {wanted}"
        )
    if isinstance(function, AbstractAsyncContextManager) or not callable(function):
        raise ConfigError(f"lifespan is {shown(function)}: give the function itself, without calling it")
