"""Checks of what callers pass in: each returns the value as the graph keeps it, or raises ``InvalidInput``.

A message names the field, the allowed range and the next step, on one line. It never repeats an observation or metadata.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, TypeVar
from unicodedata import normalize

import msgspec

from unstuck_memory.errors import InvalidInput
from unstuck_memory.values import NewEntity, NewRelation, Observations, RelationKey

QUERY = 10_000  # characters of a question
NAME = 200  # characters of a name or a type
OBSERVATION = 10_000  # characters of an observation
OBSERVATIONS = 1_000  # of an entity
ITEMS = 1_000  # of a call
CALL = 10_000  # observations of a call: more of them would hold the graph's lock for too long
METADATA = 64 * 1024  # bytes as JSON
DEEPEST = 100  # levels of metadata
PROJECT = 100  # characters
PAGE = 1_000  # items of a page
EARLIEST, LATEST = (
    10**11,
    10**14 - 1,
)  # milliseconds: from 1973 to 5138, so that seconds and microseconds are noticed
CENTURY = 100 * 366 * 86_400_000

T = TypeVar("T")


def project(value: Any) -> str:
    found = _line("project", value, PROJECT, "use another name")
    if not found.isprintable():
        raise InvalidInput(
            f"project is {_shown(value)}: 1 to {PROJECT} printable characters are allowed; use another name"
        )
    return found


def name(what: str, value: Any) -> str:
    """A name or a type: NFC, without spaces at its ends."""
    return _line(what, value, NAME, "put details in an observation")


def names(what: str, values: Any) -> list[str]:
    """Names without repetitions."""
    return _unique(name(f"{what}[{at}]", value) for at, value in enumerate(_list(what, values, ITEMS)))


def observations(what: str, values: Any) -> tuple[str, ...]:
    """Observations without repetitions, as they were written."""
    found = _list(what, values, OBSERVATIONS)
    return tuple(_unique(observation(f"{what}[{at}]", value) for at, value in enumerate(found)))


def observation(what: str, value: Any) -> str:
    step = "divide it into several observations"
    _characters(what, value, OBSERVATION, step)
    if not 1 <= len(value) <= OBSERVATION or value.isspace():
        has = f"has {len(value):,} characters" if value.strip() else "is empty"
        raise InvalidInput(
            f"{what} {has}: 1 to {OBSERVATION:,} characters are allowed; {step if value.strip() else 'leave it out'}"
        )
    return str(value)


def query(value: Any) -> str:
    """A question, as it was written."""
    step = "ask in a few words"
    _characters("query", value, QUERY, step)
    if len(value) > QUERY or not value.strip():
        has = f"has {len(value):,} characters" if value.strip() else "is empty"
        raise InvalidInput(f"query {has}: 1 to {QUERY:,} characters are allowed; {step}")
    return str(value)


def entities(values: Any) -> list[NewEntity]:
    found = _items("entities", values, NewEntity)
    checked = [
        NewEntity(
            name=name(f"{what}.name", value.name),
            entity_type=name(f"{what}.entityType", value.entity_type),
            observations=observations(f"{what}.observations", value.observations),
            changed_by=changed_by(f"{what}.changedBy", value.changed_by),
        )
        for what, value in found
    ]
    _bounded("entities", sum(len(entity.observations) for entity in checked))
    return checked


def additions(values: Any) -> list[Observations]:
    """Observations to add, and those that they replace."""
    checked = [
        Observations(
            entity_name=name(f"{what}.entityName", value.entity_name),
            contents=observations(f"{what}.contents", value.contents),
            replaces=observations(f"{what}.replaces", value.replaces),
        )
        for what, value in _items("observations", values, Observations)
    ]
    _bounded("observations", sum(len(item.contents) + len(item.replaces) for item in checked))
    return checked


def deletions(values: Any) -> list[Observations]:
    checked = []
    for what, value in _items("deletions", values, Observations):
        if value.replaces:
            raise InvalidInput(
                f"{what}.replaces is given: only contents are deleted; to replace, use add_observations"
            )
        checked.append(
            Observations(
                entity_name=name(f"{what}.entityName", value.entity_name),
                contents=observations(f"{what}.contents", value.contents),
            )
        )
    _bounded("deletions", sum(len(item.contents) for item in checked))
    return checked


def room(what: str, count: int) -> None:
    """Refuse an entity that would have too many observations."""
    if count > OBSERVATIONS:
        raise InvalidInput(
            f"{what} would have {count:,} observations: at most {OBSERVATIONS:,} are allowed; "
            "delete some of them, or use another entity"
        )


def relations(values: Any) -> list[NewRelation]:
    return [relation(what, value) for what, value in _items("relations", values, NewRelation)]


def relation(what: str, value: Any) -> NewRelation:
    value = _typed(what, value, NewRelation)
    key = _key(what, value)
    return NewRelation(
        from_=key.from_,
        to=key.to,
        relation_type=key.relation_type,
        strength=share(f"{what}.strength", value.strength),
        confidence=share(f"{what}.confidence", value.confidence),
        metadata=metadata(f"{what}.metadata", value.metadata),
        changed_by=changed_by(f"{what}.changedBy", value.changed_by),
    )


def keys(values: Any) -> list[RelationKey]:
    return [_key(what, value) for what, value in _items("relations", values, RelationKey)]


def key(from_: Any, to: Any, relation_type: Any) -> RelationKey:
    return RelationKey(
        from_=name("from", from_), to=name("to", to), relation_type=name("relationType", relation_type)
    )


def changed_by(what: str, value: Any) -> str | None:
    return None if value is None else name(what, value)


def share(what: str, value: Any) -> float | None:
    """A strength or a confidence; None is not stated."""
    if value is None:
        return None
    # Written so that NaN is refused, too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput(
            f"{what} is {_shown(value)}: it must be a number from 0 to 1; leave it out if it is not known"
        )
    return float(value)


def metadata(what: str, value: Any) -> dict[str, Any] | None:
    """A JSON object, with nothing but what JSON has."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} is {_shown(value)}: it must be a JSON object; use {{}} for an empty one")
    _json(what, value, 1)
    text = msgspec.json.encode(value)
    if len(text) > METADATA:
        raise InvalidInput(
            f"{what} has {len(text):,} bytes as JSON: at most {METADATA:,} are allowed; "
            "keep the data elsewhere and store where it is"
        )
    return dict(msgspec.json.decode(text))


def timestamp(what: str, value: Any) -> int:
    """A time in milliseconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST <= value <= LATEST:
        number = not isinstance(value, bool) and isinstance(value, int | float)
        seconds = number and EARLIEST <= value * 1000 <= LATEST
        raise InvalidInput(
            f"{what} is {_shown(value)}: it must be milliseconds since 1970, a whole number from {EARLIEST} to {LATEST}; "
            + ("this looks like seconds, multiply it by 1000" if seconds else "pass a time in milliseconds")
        )
    return value


def limit(value: Any) -> int:
    return whole("limit", value, 1, PAGE, "ask for the next page behind the last item")


def older_than(value: Any) -> int:
    """An age in milliseconds."""
    return whole(
        "olderThan", value, 0, CENTURY, "pass an age in milliseconds, for example 86400000 for a day"
    )


def whole(what: str, value: Any, least: int, most: int, step: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(
            f"{what} is {_shown(value)}: it must be a whole number from {least} to {most}; {step}"
        )
    return value


def decay_factor(value: Any) -> float:
    # Written so that NaN is refused, too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -sys.float_info.max <= value <= 0:
        raise InvalidInput(
            f"decayFactor is {_shown(value)}: it must be a finite number of at most 0, because confidence does not grow with age; "
            "leave it out for a half-life of 30 days"
        )
    return float(value)


def _line(what: str, value: Any, most: int, step: str) -> str:
    _characters(what, value, most, step)
    found = normalize("NFC", value.strip()) if len(value) <= 20 * most else value
    if not 1 <= len(found) <= most:
        has = f"has {len(found):,} characters" if found else "is empty"
        raise InvalidInput(f"{what} {has}: 1 to {most} characters are allowed; {step}")
    return found


def _characters(what: str, value: Any, most: int, step: str) -> None:
    if not isinstance(value, str):
        raise InvalidInput(
            f"{what} is {_shown(value)}: it must be a text of 1 to {most:,} characters; {step}"
        )
    if (fault := unfit(value)) is not None:
        raise InvalidInput(
            f"{what} has {fault}: 1 to {most:,} characters of valid Unicode without NUL are allowed; remove it"
        )


def unfit(text: str) -> str | None:
    """What not every graph can keep of a text."""
    if (at := text.find("\0")) >= 0:
        return f"the NUL character at position {at}"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"half a surrogate pair at position {error.start}"
    return None


def _json(what: str, value: Any, depth: int) -> None:
    """Refuse what is not JSON. Field names of metadata are not repeated."""
    if depth > DEEPEST:
        raise InvalidInput(
            f"{what} is nested too deeply: at most {DEEPEST} levels are allowed; store it flatter"
        )
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInput(
                    f"{what} has a field name that is not a text: JSON allows only texts; write it as one"
                )
            _json(what, key, depth)
            _json(what, item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _json(what, item, depth + 1)
    elif isinstance(value, str):
        if (fault := unfit(value)) is not None:
            raise InvalidInput(f"{what} has {fault}: valid Unicode without NUL is allowed; remove it")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{what} has {value}: JSON allows only finite numbers; use null")
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise InvalidInput(
            f"{what} has a whole number of more than 64 bits: from -2^63 to 2^64-1 are allowed; write it as a text"
        )
    elif value is not None and not isinstance(value, bool | int | float):
        raise InvalidInput(
            f"{what} has a value of type {type(value).__name__}: JSON allows texts, numbers, lists and objects; write it as a text"
        )


def _key(what: str, value: NewRelation | RelationKey) -> RelationKey:
    return RelationKey(
        from_=name(f"{what}.from", value.from_),
        to=name(f"{what}.to", value.to),
        relation_type=name(f"{what}.relationType", value.relation_type),
    )


def _items(what: str, values: Any, kind: type[T]) -> list[tuple[str, T]]:
    found = _list(what, values, ITEMS)
    return [(f"{what}[{at}]", _typed(f"{what}[{at}]", value, kind)) for at, value in enumerate(found)]


def _typed(what: str, value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise InvalidInput(f"{what} is {_shown(value)}: it must be a {kind.__name__}; make one of its fields")
    return value


def _list(what: str, values: Any, most: int) -> Sequence[Any]:
    # A text is a sequence, too: of its characters.
    if not isinstance(values, list | tuple):
        raise InvalidInput(
            f"{what} is {_shown(values)}: it must be a list of at most {most:,}; put it in a list"
        )
    if len(values) > most:
        raise InvalidInput(
            f"{what} has {len(values):,} items: at most {most:,} are allowed; divide it into several calls"
        )
    return values


def _bounded(what: str, count: int) -> None:
    if count > CALL:
        raise InvalidInput(
            f"{what} have {count:,} observations together: at most {CALL:,} are allowed in a call; "
            "divide it into several calls"
        )


def _unique(values: Any) -> list[str]:
    return list(dict.fromkeys(values))


def _shown(value: Any) -> str:
    """A value as a message repeats it: short and on one line."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "…")
    if isinstance(value, int) and abs(value) < 10**20:
        return repr(value)
    return f"of type {type(value).__name__}"
