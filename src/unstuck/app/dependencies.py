"""Depends: parameters that workers fill, what fills them, and in which order that is made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from inspect import (
    Parameter,
    isasyncgenfunction,
    isclass,
    iscoroutinefunction,
    isgeneratorfunction,
    isroutine,
    signature,
    unwrap,
)
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, overload

from unstuck.app.payload import hints_of
from unstuck.config.checks import shown
from unstuck.protocol.errors import ConfigError

T = TypeVar("T")
Scope = Literal["job", "worker"]
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Dependency:
    """A function whose value fills parameters, once for each job or once for each worker."""

    function: Function
    scope: Scope = "job"


@overload
def Depends(function: Callable[..., AbstractAsyncContextManager[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(function: Callable[..., AbstractContextManager[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(function: Callable[..., AsyncIterator[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(function: Callable[..., Iterator[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(function: Callable[..., Awaitable[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(function: Callable[..., T], *, scope: Scope = "job") -> T: ...


def Depends(function: Function, *, scope: Scope = "job") -> Any:  # noqa: N802 - it is written where a type is
    """A parameter that the worker fills with what this function returns, or yields::

        async def session() -> AsyncIterator[Session]:
            async with Session(engine) as opened:
                yield opened

        @app.task
        async def bill(customer: str, db: Session = Depends(session)) -> None: ...

        await bill.enqueue("ann")

    ``db: Annotated[Session, Depends(session)]`` is the same; type checkers then ask for ``db`` in each call. A function
    is called once for each job, or with ``scope="worker"`` once for each worker.
    """
    if not callable(function):
        raise ConfigError(
            f"Depends() has {shown(function)}: give the function itself, without calling it, as in Depends(session)"
        )
    if scope not in get_args(Scope):
        raise ConfigError(
            f"scope of dependency {name_of(function)!r} is {shown(scope)}: it must be 'job' or 'worker'"
        )
    return Dependency(function, scope)


class Kind(Enum):
    """How a value is made."""

    PLAIN = auto()
    COROUTINE = auto()
    CONTEXT = auto()
    ASYNC_CONTEXT = auto()


@dataclass(frozen=True, slots=True)
class Need:
    """A dependency, the function that is called for it, how, and which dependencies fill its parameters."""

    dependency: Dependency
    function: Function
    kind: Kind
    fills: Mapping[str, Dependency]

    @property
    def of_worker(self) -> bool:
        return self.dependency.scope == "worker"


class Needs:
    """The parameters of one handler that the worker fills, and all that has to be made for them.

    ``instead`` has functions that are called in the place of others, in a test. ``order`` has each after those it needs.
    """

    def __init__(self, function: Function, what: str, instead: Mapping[Function, Function] = {}) -> None:
        self.parameters = _filled(function, what)
        self._function = function
        self._instead = instead
        found: dict[Dependency, Need] = {}
        for name, dependency in self.parameters.items():
            self._find(dependency, f"{what}: parameter {name!r}", found, ())
        self.order = tuple(found.values())

    def __bool__(self) -> bool:
        return bool(self.parameters)

    @property
    def functions(self) -> set[Function]:
        """Those that the code names, whatever is called instead."""
        return {need.dependency.function for need in self.order}

    def unfilled(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
        """The parameters that would be left to a worker in this call, which none makes."""
        takes = signature(self._function)
        try:
            given = takes.bind_partial(*args, **kwargs).arguments
        except TypeError:  # the function's own call raises the same
            return []
        return [
            name
            for name in self.parameters
            if name not in given and isinstance(takes.parameters[name].default, Dependency)
        ]

    def _find(
        self, dependency: Dependency, what: str, found: dict[Dependency, Need], path: tuple[Dependency, ...]
    ) -> None:
        if dependency.function in [each.function for each in path]:
            names = " -> ".join(name_of(each.function) for each in (*path, dependency))
            raise ConfigError(f"{what}: dependencies need each other in a circle: {names}")
        if dependency in found:
            return
        function = self._instead.get(dependency.function, dependency.function)
        fills = _fillable(function, what)
        for each in fills.values():
            if dependency.scope == "worker" and each.scope == "job":
                raise ConfigError(
                    f"{what}: dependency {name_of(function)!r} lasts as long as the worker and needs "
                    f"{name_of(each.function)!r}, which ends with a job: give both the same scope"
                )
            self._find(each, what, found, (*path, dependency))
        found[dependency] = _need(dependency, function, fills)


def name_of(function: Function) -> str:
    return str(getattr(function, "__qualname__", None) or shown(function))


def _filled(function: Function, what: str) -> dict[str, Dependency]:
    """The parameters of a function that are dependencies, by a default value or by an annotation."""
    target = _annotated(function)
    hints = hints_of(target, what)
    found: dict[str, Dependency] = {}
    for parameter in _parameters(function):
        if isinstance(parameter.default, Dependency):
            found[parameter.name] = parameter.default
        elif get_origin(hint := hints.get(parameter.name)) is Annotated:
            for mark in get_args(hint)[1:]:
                if isinstance(mark, Dependency):
                    found[parameter.name] = mark
    return found


def _fillable(function: Function, what: str) -> dict[str, Dependency]:
    """The same of a dependency; whatever else it takes must have a default."""
    who = f"{what}: dependency {name_of(function)!r}"
    filled = _filled(function, who)
    for parameter in _parameters(function):
        optional = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if parameter.name in filled and parameter.kind is Parameter.POSITIONAL_ONLY:
            raise ConfigError(f"{who} takes {parameter.name!r} by position only: drop the /")
        if parameter.name not in filled and parameter.default is Parameter.empty and not optional:
            raise ConfigError(
                f"{who} takes {parameter.name!r}, which nothing fills: give it a default or Depends(…); "
                "the arguments of a job are in current_job().job.payload"
            )
    return filled


def _parameters(function: Function) -> Collection[Parameter]:
    try:
        return signature(function).parameters.values()
    except (
        ValueError
    ):  # some built-in functions do not know what they take: then it is called without anything
        return ()


def _annotated(function: Function) -> Function:
    """What has the annotations of a class, a partial or a callable object."""
    if isinstance(function, partial):
        return _annotated(function.func)
    if isclass(function):
        return cast(Function, function.__init__)
    return function if isroutine(function) else type(function).__call__


def _need(dependency: Dependency, function: Function, fills: Mapping[str, Dependency]) -> Need:
    target = _annotated(function)
    inner = unwrap(target)
    if isasyncgenfunction(inner):
        managed = asynccontextmanager(function) if inner is target else function
        return Need(dependency, managed, Kind.ASYNC_CONTEXT, fills)
    if isgeneratorfunction(inner):
        managed = contextmanager(function) if inner is target else function
        return Need(dependency, managed, Kind.CONTEXT, fills)
    return Need(dependency, function, Kind.COROUTINE if iscoroutinefunction(target) else Kind.PLAIN, fills)
