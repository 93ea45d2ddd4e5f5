"""Entities and relations as an answer shows them: as data, and as lines that a model reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, to_builtins

from unstuck_memory.mcp.answer import Answer, cost
from unstuck_memory.values import Entity, Relation

BEHIND = 100  # characters for what is said about observations that are left out
SHORTEST = 40  # characters of an observation that are worth being shown


class Cut(Struct, array_like=True, frozen=True):
    """Where the rest of an entity begins."""

    observation: int = 0
    character: int = 0


WHOLE = Cut()


class Part(Struct, frozen=True):
    """As much of an entity as there was room for; ``rest`` is where the next part begins."""

    value: dict[str, Any]
    text: str
    rest: Cut | None


def entity_part(
    entity: Entity,
    room: int,
    *,
    start: Cut = WHOLE,
    facts: dict[str, Any],
    title: str,
    force: bool,
) -> Part | None:
    """The entity from ``start`` on. None if it does not fit; with ``force``, at least a piece of an observation is shown."""
    shown: list[str] = []
    value = {"name": entity.name, "entityType": entity.entity_type} | facts | {"observations": shown}
    lines = [title]
    room -= cost(value, title) + BEHIND
    if room < 0:
        return None
    at, character = start.observation, start.character
    while at < len(entity.observations):
        text = entity.observations[at]
        piece = text[character:] if not character else _piece(text, character, len(text))
        if cost(piece, _line(piece)) > room:
            break
        room -= cost(piece, _line(piece))
        shown.append(piece)
        at, character = at + 1, 0
    if at < len(entity.observations) and not shown:
        if not force and start == WHOLE:
            return None
        character = _cut(entity.observations[at], character, room)
        if character == start.character and at == start.observation:
            return None
        shown.append(_piece(entity.observations[at], start.character, character))
        if character == len(entity.observations[at]):
            at, character = at + 1, 0
    lines += map(_line, shown)
    if start.observation:
        value["observationsBefore"] = start.observation
    rest = Cut(at, character) if at < len(entity.observations) else None
    if rest is not None:
        value["observationsLeft"] = len(entity.observations) - at
        lines.append(f"  … {len(entity.observations) - at} more of {len(entity.observations)} observations")
    return Part(value, "\n".join(lines), rest)


def _cut(text: str, character: int, room: int) -> int:
    """How far a piece that begins at ``character`` can go."""
    low, high = 0, len(text) - character
    while low < high:
        middle = (low + high + 1) // 2
        piece = _piece(text, character, character + middle)
        if cost(piece, _line(piece)) <= room:
            low = middle
        else:
            high = middle - 1
    return character + (low if low >= min(SHORTEST, len(text) - character) else 0)


def _piece(text: str, start: int, end: int) -> str:
    if start == 0 and end == len(text):
        return text
    return f"{text[start:end]}… [characters {start + 1:,} to {end:,} of {len(text):,}]"


def _line(observation: str) -> str:
    return "- " + "\n  ".join(observation.splitlines())  # so that no line of it looks like one of the answer


def named(name: str) -> str:
    """A name on one line."""
    return name if name.isprintable() else json.dumps(name, ensure_ascii=False)


def title_of(entity: Entity) -> str:
    return f"{named(entity.name)} ({named(entity.entity_type)})"


def facts_of(entity: Entity, *, past: bool = False) -> dict[str, Any]:
    """What is known of a version beside its content; with ``past``, when it was valid."""
    facts: dict[str, Any] = {
        "version": entity.version,
        "createdAt": entity.created_at,
        "updatedAt": entity.updated_at,
    }
    if past:
        facts |= {"validFrom": entity.valid_from, "validTo": entity.valid_to, "changedBy": entity.changed_by}
    return {key: value for key, value in facts.items() if value is not None}


def add_relation(answer: Answer, relation: Relation, *, past: bool = False) -> bool:
    """Add it if it fits; metadata that no answer could hold are left out."""
    value = relation_value(relation, past=past)
    if answer.add("relations", value, relation_text(relation, past=past)):
        return True
    if not answer.empty or relation.metadata is None:
        return False
    value["metadata"] = {"left out": f"{cost(relation.metadata):,} characters"}
    return answer.add("relations", value, relation_text(relation, metadata=False, past=past))


def relation_value(relation: Relation, *, past: bool = False) -> dict[str, Any]:
    value: dict[str, Any] = to_builtins(relation)
    hidden = {"uid"} if past else {"uid", "validFrom", "validTo", "changedBy"}
    return {key: item for key, item in value.items() if item is not None and key not in hidden}


def relation_text(relation: Relation, *, metadata: bool = True, past: bool = False) -> str:
    facts = [
        f"{name} {number:.4g}"
        for name, number in (("strength", relation.strength), ("confidence", relation.confidence))
        if number is not None
    ]
    if relation.metadata:
        facts.append(
            "metadata " + (json.dumps(relation.metadata, ensure_ascii=False) if metadata else "left out")
        )
    if past:
        facts.append(f"version {relation.version}, {span(relation)}")
    line = f"{named(relation.from_)} -[{named(relation.relation_type)}]-> {named(relation.to)}"
    return line + (f" ({', '.join(facts)})" if facts else "")


def span(version: Entity | Relation) -> str:
    """When a version was valid."""
    until = "now" if version.valid_to is None else moment(version.valid_to)
    return f"{moment(version.valid_from)} to {until}"


def moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
