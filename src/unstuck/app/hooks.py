"""Functions of an application that run around a worker's life and around each job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from unstuck.app.context import Context
from unstuck.config.checks import shown
from unstuck.protocol.errors import ConfigError

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]
Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]


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
