"""JSON schemas of arguments and answers, as short as they can be: each is sent to a model with every list of tools."""

from __future__ import annotations

from typing import Any

import msgspec


def arguments_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of a tool's arguments. Others are refused; the schema need not repeat that of every object."""
    return _short_schema(kind, frozenset())


def answer_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of a tool's answer: what may be in it."""
    return _short_schema(kind, frozenset({"required"}))


def _short_schema(kind: type[msgspec.Struct], left_out: frozenset[str]) -> dict[str, Any]:
    """Without references, titles, defaults and nulls, and without the docstrings of structs."""
    _, parts = msgspec.json.schema_components([kind])
    for part in parts.values():
        part.pop("description", None)
    short = _short(parts[kind.__name__], parts, left_out | {"title", "default", "additionalProperties"})
    assert isinstance(short, dict)
    return short


def _short(schema: Any, parts: dict[str, Any], left_out: frozenset[str]) -> Any:
    if isinstance(schema, list):
        return [_short(item, parts, left_out) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if (name := schema.get("$ref")) is not None:
        return _short(parts[name.rpartition("/")[2]], parts, left_out)
    if (choices := schema.get("anyOf")) is not None:
        described = {key: value for key, value in schema.items() if key == "description"}
        [found] = [choice for choice in choices if choice != {"type": "null"}]
        return _short(found, parts, left_out) | described
    return {
        key: {name: _short(value, parts, left_out) for name, value in item.items()}
        if key == "properties"
        else _short(item, parts, left_out)
        for key, item in schema.items()
        if key not in left_out and not (key == "required" and not item)
    }
