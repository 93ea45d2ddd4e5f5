"""Tools that read what was."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_types import CallToolResult
from msgspec import Struct

from unstuck_memory import cursors
from unstuck_memory.errors import NotFound
from unstuck_memory.mcp.answer import Answer, AnswerTooSmall
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.shown import WHOLE, Cut, add_relation, entity_part, facts_of, named, span
from unstuck_memory.mcp.tool import READS, tool
from unstuck_memory.mcp.tools.fields import (
    Arguments,
    Bounded,
    Cursor,
    Key,
    Limit,
    ShownEntity,
    ShownRelation,
)
from unstuck_memory.mcp.tools.reading import no_relation
from unstuck_memory.values import Entity


class Place(Struct, array_like=True, frozen=True):
    """How many versions are behind us, and how much of the next one."""

    version: int = 0
    cut: Cut = WHOLE


class EntityHistory(Arguments, frozen=True, kw_only=True):
    entityName: str  # noqa: N815
    limit: Limit = None
    cursor: Cursor = None


class EntityVersion(ShownEntity, frozen=True, kw_only=True):
    version: int
    valid_from: int
    valid_to: int | None = None


class EntityVersions(Bounded, frozen=True, kw_only=True):
    total: int
    entities: list[EntityVersion]


@tool(
    takes=EntityHistory,
    answers=EntityVersions,
    hints=READS,
    description="""Read all versions of an entity, the oldest first, also if it was deleted. Use it to find out when something became
    known or was changed.""",
)
async def get_entity_history(served: Served, given: EntityHistory) -> CallToolResult:
    versions = await served.memory.get_entity_history(given.entityName)
    if not versions:
        raise NotFound(
            f"there is no entity {given.entityName!r}, and there was none: correct the name, or search for it"
        )
    question = ["get_entity_history", versions[0].name]
    place = cursors.read(given.cursor, Place, *question) or Place()
    answer = Answer(served.budget, "entities", cursor=60, total=len(versions))
    end = len(versions) if given.limit is None else min(place.version + given.limit, len(versions))
    there = _versions(answer, versions[:end], place)
    if there.version == len(versions):
        return answer.result()
    return answer.result(next_cursor=cursors.made(there, *question))


def _versions(answer: Answer, versions: Sequence[Entity], place: Place) -> Place:
    """Add as many as fit; answers where the rest begins."""
    cut = place.cut
    for number, entity in enumerate(versions[place.version :], place.version):
        part = entity_part(
            entity,
            answer.room,
            start=cut,
            facts=facts_of(entity, past=True),
            title=f"{named(entity.name)} ({named(entity.entity_type)}), version {entity.version}, {span(entity)}",
            force=answer.empty,
        )
        if part is None or (part.rest is not None and not answer.empty):
            if answer.empty:
                raise AnswerTooSmall(answer.budget)
            return Place(number)
        added = answer.add("entities", part.value, part.text)
        assert added
        if part.rest is not None:
            return Place(number, part.rest)
        cut = WHOLE
    return Place(len(versions))


class RelationHistory(Key, frozen=True, kw_only=True):
    limit: Limit = None
    cursor: Cursor = None


class RelationVersion(ShownRelation, frozen=True, kw_only=True):
    version: int
    valid_from: int
    valid_to: int | None = None


class RelationVersions(Bounded, frozen=True, kw_only=True):
    total: int
    relations: list[RelationVersion]


@tool(
    takes=RelationHistory,
    answers=RelationVersions,
    hints=READS,
    description="""Read all versions of a relation, the oldest first, also if it was deleted. Use it to find out how a connection
    changed.""",
)
async def get_relation_history(served: Served, given: RelationHistory) -> CallToolResult:
    versions = await served.memory.get_relation_history(given.from_, given.to, given.relationType)
    if not versions:
        raise no_relation(given)
    question = ["get_relation_history", given.from_, given.to, given.relationType]
    done = start = cursors.read(given.cursor, int, *question) or 0
    answer = Answer(served.budget, "relations", cursor=60, total=len(versions))
    for relation in versions[start : None if given.limit is None else start + given.limit]:
        if not add_relation(answer, relation, past=True):
            break
        done += 1
    if done == start < len(versions):
        raise AnswerTooSmall(served.budget)
    if done >= len(versions):
        return answer.result()
    return answer.result(next_cursor=cursors.made(done, *question))
