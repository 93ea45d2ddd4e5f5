"""Arguments of a call, as a host sends them, made into the tool's struct; or one line that says what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from unstuck_memory.errors import InvalidInput

T = TypeVar("T", bound=msgspec.Struct)

_PATH = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_FIELD = re.compile(r"(unknown|missing required) field `(.*?)`")


def read(tool: str, kind: type[T], schema: Mapping[str, Any], given: Mapping[str, Any] | None) -> T:
    """The arguments as a struct. Lists and objects may be JSON text wherever they are, because hosts send them so."""
    raw = _parsed(given or {}, schema)
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(_explained(tool, str(error), raw, schema)) from None


def _parsed(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value whose schema wants something else than a host makes of it: a list in a text, a whole number as 2.0."""
    kind = schema.get("type")
    if isinstance(value, str) and kind in {"array", "object"}:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, list) and kind == "array":
        return [_parsed(item, schema.get("items", {})) for item in value]
    if isinstance(value, Mapping) and (known := schema.get("properties")) is not None:
        return {name: _parsed(item, known.get(name, {})) for name, item in value.items()}
    if isinstance(value, float) and kind == "integer" and value.is_integer():
        return int(value)
    return value


def _explained(tool: str, message: str, raw: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    path = found.group(1) if (found := _PATH.search(message)) else ""
    value, at = _look(raw, schema, path)
    where = path.removeprefix(".")
    if found := _FIELD.search(message):
        named = f"{where}.{found[2]}" if where else found[2]
        takes = ", ".join(at.get("properties", {})) or "no arguments"
        if found[1] == "unknown":
            return f"{named[:200]!r} is not an argument of {tool}: {where or tool} takes {takes}; leave it out, or correct its name"
        wanted = _wanted(at.get("properties", {}).get(found[2], {}))
        return f"{named} is missing: {tool} needs it, {wanted}; add it"
    return f"{where or 'arguments'} is {_shown(value)}: it must be {_wanted(at)}; correct it and call {tool} again"


def _look(value: Any, schema: Mapping[str, Any], path: str) -> tuple[Any, Mapping[str, Any]]:
    """What is at a path, and the schema of that place."""
    for name, index in _STEP.findall(path):
        if name:
            value = value.get(name) if isinstance(value, Mapping) else None
            schema = schema.get("properties", {}).get(name, {})
        else:
            value = value[int(index)] if index and isinstance(value, list) else None
            schema = schema.get("items", {})
    return value, schema


def _wanted(schema: Mapping[str, Any]) -> str:
    if (choices := schema.get("enum")) is not None:
        return " or ".join(repr(choice) for choice in choices)
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        bounds = f" from {least:g} to {most:g}"
    else:
        bounds = (
            f" of at least {least:g}"
            if least is not None
            else f" of at most {most:g}"
            if most is not None
            else ""
        )
    match schema.get("type"):
        case "array":
            inner = schema.get("items", {}).get("type")
            return "a list of " + {"object": "objects", "string": "texts"}.get(inner, "items")
        case "object":
            return "an object" + (f" with {', '.join(fields)}" if (fields := schema.get("required")) else "")
        case "integer":
            return f"a whole number{bounds}"
        case "number":
            return f"a number{bounds}"
        case "boolean":
            return "true or false"
        case _:
            return "a text"


def _shown(value: Any) -> str:
    """A value as a message repeats it: short, and on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**20 else "a huge number"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "…")
    return "a list" if isinstance(value, list) else "an object"
