"""like_its_function(): methods of a task that show ``help()`` and editors its function's own signature and text."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter, Signature, getdoc
from types import FunctionType, MethodType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class _Shown:
    """A method, taken from the task that it is called on, where ``copies_of`` has put one with that task's signature."""

    def __init__(self, method: FunctionType, returns: Any) -> None:
        self.method = method
        self.returns = returns

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, task: Any, owner: type) -> Any:
        return self.method if task is None else MethodType(task.shown[self._name], task)


def like_its_function(returns: Any) -> Callable[[F], F]:
    """A decorator for methods that take the arguments of a task's function and return one of these generic values."""

    def decorate(method: F) -> F:
        return cast(F, _Shown(cast(FunctionType, method), returns))

    return decorate


def copies_of(owner: type, function: Callable[..., Any], takes: Signature, answer: Any) -> dict[str, Any]:
    """These methods as one task has them; ``answer`` is the type of what its jobs return."""
    found = {name: each for name, each in vars(owner).items() if isinstance(each, _Shown)}
    return {
        name: _copy(each.method, function, takes.replace(return_annotation=each.returns[answer]))
        for name, each in found.items()
    }


def _copy(method: FunctionType, function: Callable[..., Any], signature: Signature) -> FunctionType:
    copy = FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__
    )
    update_wrapper(copy, method)
    del copy.__dict__["__wrapped__"]
    bound_to = Parameter("__task", Parameter.POSITIONAL_ONLY)
    copy.__signature__ = signature.replace(parameters=[bound_to, *signature.parameters.values()])  # type: ignore[attr-defined]
    copy.__doc__ = "\n\n".join(filter(None, [getdoc(method), getdoc(function)]))
    return copy
