"""Arguments and Result: a function's annotations as types, which check JSON on its way in and on its way out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from unstuck.protocol.errors import ConfigError, PayloadError
from unstuck.protocol.job import Json
from unstuck.protocol.json_text import LIMIT, encode, plain

_FORBIDDEN_KINDS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*args",
    inspect.Parameter.VAR_KEYWORD: "**kwargs",
    inspect.Parameter.POSITIONAL_ONLY: "positional-only parameters",
}


def hints_of(function: Callable[..., Any], what: str) -> dict[str, Any]:
    """The function's annotations as types; raises ConfigError if one of them cannot be read."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ConfigError(_unusable(what, error)) from error


class Arguments:
    """Packs the arguments of one function into JSON and unpacks them again, checked against its annotations.

    Understands what msgspec does (dataclasses, typed dicts, dates, enums, unions …) and pydantic models.
    """

    def __init__(
        self, function: Callable[..., Any], task: str, *, each: bool = False, without: Collection[str] = ()
    ) -> None:
        """``each``: the function takes one list, and a payload holds one of its items. ``without``: what jobs do not carry."""
        self._what = f"task {task!r}"
        takes = inspect.signature(function)
        every = list(takes.parameters.values())
        parameters = [one for one in every if one.name not in without]
        self._signature = takes.replace(parameters=parameters)
        if each and len(parameters) != 1:
            raise ConfigError(
                f"batch task {task!r} must take exactly one argument, a list of what jobs carry"
            )
        if (
            parameters
            and parameters[0].name == "self"
            and parameters[0].annotation is inspect.Parameter.empty
        ):
            raise ConfigError(
                f"task {task!r} is a method, and a job has no self: make a task of a function outside of the class"
            )
        for parameter in every:
            if kind := _FORBIDDEN_KINDS.get(parameter.kind):
                raise ConfigError(
                    f"task {task!r} takes {kind}: name every argument, so that payloads can be checked"
                )
        self._count = len(parameters)
        self._positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        hints = hints_of(function, self._what)
        try:
            if each:
                _must_be_a_list(task, hints.get(parameters[0].name, Any))
                _must_answer_with_a_list(task, hints.get("return", Any))
                hints = {name: (get_args(hint) or (Any,))[0] for name, hint in hints.items()}
            self._struct = msgspec.defstruct(
                "Arguments",
                [_field(parameter, hints.get(parameter.name, Any)) for parameter in parameters],
                kw_only=True,
                forbid_unknown_fields=True,
            )
            self._decoder = msgspec.json.Decoder(self._struct, dec_hook=_model)
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            raise ConfigError(_unusable(self._what, error)) from error
        self._encoder = msgspec.json.Encoder(enc_hook=plain)
        self.signature = self._signature.replace(
            parameters=[one.replace(annotation=hints.get(one.name, one.annotation)) for one in parameters]
        )  # of a call that enqueues a job

    @property
    def names(self) -> tuple[str, ...]:
        return self._struct.__struct_fields__

    def pack(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> msgspec.Raw:
        """The arguments as JSON; raises PayloadError if a call with them could not be carried out."""
        named = {**dict(zip(self._positional, args, strict=False)), **kwargs} if args else kwargs
        if len(named) != self._count or len(args) + len(kwargs) != self._count:
            named = self._completed(args, kwargs)
        text = encode(named, self._what, self._encoder)
        try:
            self._decoder.decode(text)
        except Exception as error:  # noqa: BLE001 - models run code of their own
            self._completed(args, kwargs)  # reports wrong names with the function's signature
            raise PayloadError(f"{self._what}: {_one_line(error)}") from None
        return msgspec.Raw(text)

    def unpack(self, payload: Json) -> dict[str, Any]:
        """The arguments for a call; raises PayloadError if the payload does not fit the function any more."""
        try:
            values = msgspec.convert(
                payload if payload is not None else {}, self._struct, dec_hook=_model, str_keys=True
            )
        except Exception as error:
            raise PayloadError(f"{self._what}: {_one_line(error)}") from error
        return msgspec.structs.asdict(values)

    def _completed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """All arguments by name, defaults included: a job carries everything that it needs."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = [name for name in kwargs if name not in self._signature.parameters]
            also = (
                f", and there is no {unknown[0]!r}" if unknown and repr(unknown[0]) not in str(error) else ""
            )
            raise PayloadError(f"{self._what}: {error}{also}; it takes {self._signature}") from None
        bound.apply_defaults()
        return bound.arguments


class Result:
    """The return annotation of a function: results are read back from JSON as that type."""

    def __init__(self, function: Callable[..., Any], *, each: bool) -> None:
        """``each``: the function returns a list, and a result is one of its items."""
        hint = get_type_hints(function, include_extras=True).get("return", Any)
        if each:
            hint = _without_exceptions((get_args(hint) or (Any,))[0])
        try:
            msgspec.json.Decoder(hint, dec_hook=_model)
        except TypeError:  # JSON cannot tell its kinds apart: then a result is what JSON gives back
            hint = Any
        self.hint = hint

    def read(self, value: Json, what: str) -> Any:
        """Raises PayloadError if the function has changed since, or returned something other than its annotation."""
        try:
            return msgspec.convert(value, self.hint, dec_hook=_model, str_keys=True)
        except Exception as error:
            raise PayloadError(
                f"{what}: its result does not fit the function's return annotation: {_one_line(error)}; "
                "job() has it as JSON"
            ) from error


def record(result: Any) -> Json:
    """A job's result as it is stored. One that is too large is dropped: the work is done all the same."""
    if result is None:
        return None
    try:
        return msgspec.Raw(encode(result, "the handler's result"))
    except PayloadError as error:
        if error.size is None:
            raise
        return msgspec.Raw(
            msgspec.json.encode({"unstuck": "result dropped", "bytes": error.size, "limit": LIMIT})
        )


def dropped(result: Json) -> str:
    """A sentence about a result that was too large to be kept; empty for any other."""
    if isinstance(result, msgspec.Raw):  # as record() made it
        result = msgspec.json.decode(result) if memoryview(result)[: len(_MARK)] == _MARK else None
    match result:
        case {"unstuck": "result dropped", "bytes": int(size), "limit": int(limit)}:
            return f"the result had {size:,} bytes as JSON, at most {limit:,} are kept"
    return ""


def _must_be_a_list(task: str, hint: Any) -> None:
    kind = get_origin(hint) or hint
    if isinstance(kind, type) and not issubclass(list, kind):
        raise ConfigError(
            f"batch task {task!r} takes a {kind.__name__}: it must take a list of what jobs carry, "
            f"for example list[{kind.__name__}]"
        )


def _must_answer_with_a_list(task: str, hint: Any) -> None:
    kind = get_origin(hint) or hint
    if isinstance(kind, type) and issubclass(kind, str | bytes | Mapping | set | frozenset | NoneType):
        returned = "None" if kind is NoneType else f"a {kind.__name__}"
        raise ConfigError(
            f"batch task {task!r} returns {returned}: it must return a list with one answer for each job"
        )


def _without_exceptions(hint: Any) -> Any:
    """The type of an answer that is not a failure."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    kept = [
        kind for kind in get_args(hint) if not (isinstance(kind, type) and issubclass(kind, BaseException))
    ]
    return Union[tuple(kept)] if kept else Any  # noqa: UP007 - the kinds are known at run time only


def _field(parameter: inspect.Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.default is parameter.empty:
        return parameter.name, hint
    default = parameter.default
    return parameter.name, hint, msgspec.field(default_factory=lambda: default)


def _model(kind: type, value: Any) -> Any:
    if kind is object:  # anything at all
        return value
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise TypeError(f"type {kind.__name__!r} cannot be read from JSON; use a dataclass or a model")


def _unusable(what: str, error: Exception) -> str:
    return (
        f"{what}: an annotation cannot be used ({_one_line(error)}); "
        "import what it names at module level, and use types that JSON can tell apart"
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


_MARK = b'{"unstuck":"result dropped"'
