"""Arguments and Result: a function's signature as types, so that JSON is checked when it goes in and when it comes out."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from unstuck.errors import ConfigError, PayloadError
from unstuck.model import Json

BACKSLASH = 92
DEEPEST = 100  # levels of nesting that every store's JSON functions can follow
TOO_DEEP = f"the value is nested too deeply, or contains itself: at most {DEEPEST} levels are allowed"
LIMIT = 1024 * 1024  # bytes of a payload or a result as JSON
_FORBIDDEN_KINDS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*args",
    inspect.Parameter.VAR_KEYWORD: "**kwargs",
    inspect.Parameter.POSITIONAL_ONLY: "positional-only parameters",
}


class Arguments:
    """Packs the arguments of one function into JSON and unpacks them again, checked against its annotations.

    Understands what msgspec does (dataclasses, typed dicts, dates, enums, unions …) and pydantic models.
    """

    def __init__(self, function: Callable[..., Any], task: str, *, each: bool = False) -> None:
        """``each``: the function takes one list, and a payload holds one of its items."""
        self._what = f"task {task!r}"
        self._signature = inspect.signature(function)
        parameters = list(self._signature.parameters.values())
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
        for parameter in parameters:
            if kind := _FORBIDDEN_KINDS.get(parameter.kind):
                raise ConfigError(
                    f"task {task!r} takes {kind}: name every argument, so that payloads can be checked"
                )
        self._count = len(parameters)
        self._positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        try:
            hints = get_type_hints(function, include_extras=True)
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
            raise ConfigError(
                f"task {task!r}: an annotation cannot be used ({_told(error)}); "
                "import what it names at module level, and use types that JSON can tell apart"
            ) from error
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)

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
            self._completed(args, kwargs)  # tells of wrong names in the words of the function
            raise PayloadError(f"{self._what}: {_told(error)}") from None
        return msgspec.Raw(text)

    def unpack(self, payload: Json) -> dict[str, Any]:
        """The arguments for a call; raises PayloadError if the payload does not fit the function any more."""
        try:
            values = msgspec.convert(
                payload if payload is not None else {}, self._struct, dec_hook=_model, str_keys=True
            )
        except Exception as error:
            raise PayloadError(f"{self._what}: {_told(error)}") from error
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
    """What a function says that it returns: as that, a result is read back from its JSON."""

    def __init__(self, function: Callable[..., Any], *, each: bool) -> None:
        """``each``: the function returns a list, and a result is one of its items."""
        hint = get_type_hints(function, include_extras=True).get("return", Any)
        if each:
            hint = _without_exceptions((get_args(hint) or (Any,))[0])
        try:
            msgspec.json.Decoder(hint, dec_hook=_model)
        except TypeError:  # JSON cannot tell its kinds apart: then a result is what JSON gives back
            hint = Any
        self._hint = hint

    def read(self, value: Json, what: str) -> Any:
        """Raises PayloadError if the function has changed since, or never returned what it said."""
        try:
            return msgspec.convert(value, self._hint, dec_hook=_model, str_keys=True)
        except Exception as error:
            raise PayloadError(
                f"{what}: its result is not what the function says it returns: {_told(error)}; "
                "job() has it as JSON"
            ) from error


def encode(value: Any, what: str, encoder: msgspec.json.Encoder | None = None) -> bytes:
    """JSON that says exactly what the value says, or a PayloadError naming what cannot be said."""
    try:
        text = (encoder or _encoder).encode(value)
    except UnicodeEncodeError:
        raise PayloadError(f"{what}: a text has half a surrogate pair, which is no valid Unicode") from None
    except RecursionError:
        raise PayloadError(f"{what}: {TOO_DEEP}") from None
    except Exception as error:  # noqa: BLE001 - models run code of their own
        raise PayloadError(f"{what}: {_told(error)}; use what JSON can say, a dataclass or a model") from None
    if len(text) > LIMIT:
        told = f"{what}: {len(text):,} bytes as JSON, at most {LIMIT:,} are allowed"
        raise PayloadError(f"{told}; store the data elsewhere and pass its address", size=len(text))
    if len(text) > 2 * DEEPEST and text.count(b"[") + text.count(b"{") > DEEPEST and _depth(text) > DEEPEST:
        raise PayloadError(f"{what}: {TOO_DEEP}")
    # JSON has no NaN (it would silently become null) and PostgreSQL no NUL: refuse both, on every store alike.
    if text.find(b"null") >= 0 or (BACKSLASH in text and b"\\u0000" in text):
        for leaf in _leaves(msgspec.to_builtins(value, enc_hook=_plain)):
            if isinstance(leaf, float) and not math.isfinite(leaf):
                raise PayloadError(f"{what}: {leaf} is not a number JSON can say; use None")
            if isinstance(leaf, str) and "\0" in leaf:
                raise PayloadError(
                    f"{what}: a text contains the NUL character, which not every store can keep"
                )
    return text


def record(result: Any) -> Json:
    """What is stored as a job's result. One that is too large is dropped: the work is done all the same."""
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
    """What is to be said of a result that was too large to be kept; nothing of any other."""
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
        told = "None" if kind is NoneType else f"a {kind.__name__}"
        raise ConfigError(
            f"batch task {task!r} returns {told}: it must return a list with one answer for each job"
        )


def _without_exceptions(hint: Any) -> Any:
    """The type of an answer that is no failure."""
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


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):  # a pydantic model
        return value.model_dump(mode="json")
    raise TypeError(f"a value of type {type(value).__name__!r} cannot be written as JSON")


def _model(kind: type, value: Any) -> Any:
    if kind is object:  # anything at all
        return value
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise TypeError(f"type {kind.__name__!r} cannot be read from JSON; use a dataclass or a model")


def _told(error: Exception) -> str:
    return " ".join(str(error).split())


def _depth(text: bytes) -> int:
    """How deep JSON is nested; what stands in strings does not count."""
    deepest = depth = 0
    for mark in _BRACKETS.finditer(text):
        if mark[0] in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif mark[0] in (b"]", b"}"):
            depth -= 1
    return deepest


def _leaves(value: Any) -> Iterator[Any]:
    todo = [value]
    while todo:
        match todo.pop():
            case dict() as found:
                todo += found.keys()
                todo += found.values()
            case list() | tuple() | set() | frozenset() as found:
                todo += found
            case leaf:
                yield leaf


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_MARK = b'{"unstuck":"result dropped"'
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
