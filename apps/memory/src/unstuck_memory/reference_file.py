"""The file of the reference memory server: current entities and relations as JSON lines, by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from unstuck_memory import checks
from unstuck_memory.answers import BadLine
from unstuck_memory.archive_records import ArchiveRecord, EntityRecord
from unstuck_memory.errors import InvalidInput
from unstuck_memory.lines import LONGEST, numbered
from unstuck_memory.values import NewEntity, NewRelation

REPORTED = 100  # bad lines by number; the others are counted


class BadLines:
    """Lines that were not read: the first ones with their problems, and how many there are."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[BadLine] = []

    def add(self, line: int, problem: str) -> None:
        self.count += 1
        self.first.append(BadLine(line=line, problem=problem))
        if len(self.first) > REPORTED:
            self.first.remove(max(self.first, key=lambda bad: bad.line))


async def lines(records: AsyncIterator[ArchiveRecord]) -> AsyncIterator[bytes]:
    """The lines of such a file, from the records of an archive: entities stand before their relations."""
    names: dict[str, str] = {}
    async for record in records:
        if isinstance(record, EntityRecord):
            entity = record.entity
            if entity.valid_to is None:
                names[entity.uid] = entity.name
                yield _line(
                    type="entity",
                    name=entity.name,
                    entityType=entity.entity_type,
                    observations=entity.observations,
                )
        elif record.valid_to is None:
            ends = {"from": names[record.from_uid], "to": names[record.to_uid]}
            yield _line(type="relation", **ends, relationType=record.relation_type)


def entities(path: Path, bad: BadLines) -> Iterator[tuple[int, NewEntity]]:
    """The entities with the numbers of their lines. What is neither an entity nor a relation is added to ``bad``."""
    for number, line in numbered(path):
        try:
            fields = _fields(line)
            if fields["type"] == "entity":
                yield number, _entity(fields)
        except InvalidInput as error:
            bad.add(number, str(error))


def relations(path: Path, bad: BadLines) -> Iterator[tuple[int, NewRelation]]:
    """The relations with the numbers of their lines. A relation that is not valid is added to ``bad``."""
    for number, line in numbered(path):
        try:
            fields = _fields(line)
        except InvalidInput:
            continue  # it is reported with the entities
        if fields["type"] == "relation":
            try:
                yield number, _relation(fields)
            except InvalidInput as error:
                bad.add(number, str(error))


def _fields(line: bytes | None) -> dict[str, Any]:
    if line is None:
        raise InvalidInput(f"the line is longer than {LONGEST:,} bytes; divide its observations")
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidInput("the line is not JSON; correct it") from None
    if not isinstance(fields, dict) or fields.get("type") not in ("entity", "relation"):
        raise InvalidInput(
            'the line must be an object whose "type" is "entity" or "relation"; correct it, or leave it out'
        )
    return fields


def _entity(fields: dict[str, Any]) -> NewEntity:
    return NewEntity(
        name=checks.name("name", fields.get("name")),
        entity_type=checks.name("entityType", fields.get("entityType")),
        observations=checks.observations("observations", fields.get("observations")),
    )


def _relation(fields: dict[str, Any]) -> NewRelation:
    key = checks.key(fields.get("from"), fields.get("to"), fields.get("relationType"))
    return NewRelation(from_=key.from_, to=key.to, relation_type=key.relation_type)


def _line(**fields: Any) -> bytes:
    return msgspec.json.encode(fields) + b"\n"
