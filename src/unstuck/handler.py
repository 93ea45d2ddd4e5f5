"""Handler: the function behind a task, and what is known of it before it is called."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from unstuck.payload import Arguments


class Handler:
    """Worked out once, when the task is registered."""

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        self.function = function
        self.arguments = Arguments(function, task)
        self.is_async = iscoroutinefunction(function)
