"""Pages of a graph: entities as far as the budget goes, then the relations of just these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from mcp_types import CallToolResult
from msgspec import Struct
from msgspec.structs import replace

from unstuck_memory import cursors
from unstuck_memory.answers import KnowledgeGraph
from unstuck_memory.mcp.answer import Answer, AnswerTooSmall
from unstuck_memory.mcp.shown import WHOLE, Cut, add_relation, entity_part, facts_of, span, title_of
from unstuck_memory.memory import RELATIONS

Fetch = Callable[[str | None, int, int], Awaitable[KnowledgeGraph]]
"""A page of so many entities behind a name, and so many of their relations."""


class Place(Struct, array_like=True, frozen=True):
    """Where a page of a graph begins: behind an entity, or in the middle of the next one, or among the relations of the next ones."""

    after: str | None = None
    cut: Cut = WHOLE
    shown: int = 0
    """How many entities the relations belong to, from ``relation`` on."""
    relation: int = 0


FARTHEST = Place(cut=Cut(9_999, 99_999), shown=9_999, relation=99_999_999)  # with the longest numbers


async def graph_page(
    budget: int,
    fetch: Fetch,
    question: Sequence[Any],
    *,
    cursor: str | None,
    limit: int,
    names_only: bool = False,
    past: bool = False,
    lines: Sequence[str] = (),
    **facts: Any,
) -> CallToolResult:
    """An answer of ``entities`` and ``relations``, behind these lines and facts."""
    place = cursors.read(cursor, Place, *question) or Place()
    relations = place.relation + RELATIONS
    page = await fetch(place.after, place.shown or limit, relations)
    names = (place.after or "", *(entity.name for entity in page.entities))
    answer = Answer(budget, "entities", "relations", cursor=_cursor_room(names, question), **facts)
    for line in lines:
        answer.note(line)
    if not place.shown:
        taken = _entities(answer, page, place, names_only=names_only, past=past)
        if isinstance(taken, Cut):
            return _continued(answer, question, Place(place.after, taken))
        if not taken and page.entities:
            raise AnswerTooSmall(budget)
        if taken < len(page.entities):
            page = await fetch(place.after, taken, relations)
    if not names_only:
        done = place.relation
        for relation in page.relations[done:]:
            if not add_relation(answer, relation, past=past):
                break
            done += 1
        if done < len(page.relations) or page.more_relations:
            if answer.empty:
                raise AnswerTooSmall(budget)
            return _continued(answer, question, Place(place.after, shown=len(page.entities), relation=done))
    if page.next_after is not None:
        return _continued(answer, question, Place(page.next_after))
    return answer.result()


def _continued(answer: Answer, question: Sequence[Any], place: Place) -> CallToolResult:
    return answer.result(next_cursor=cursors.made(place, *question))


def _entities(
    answer: Answer, page: KnowledgeGraph, place: Place, *, names_only: bool, past: bool
) -> int | Cut:
    """How many entities were added as a whole; or, if only a part of the first was, where its rest begins."""
    kept = answer.room // 3 if page.relations and not names_only else 0
    for number, entity in enumerate(page.entities):
        if names_only:
            if not answer.add(
                "entities", {"name": entity.name, "entityType": entity.entity_type}, title_of(entity)
            ):
                return number
            continue
        part = entity_part(
            entity,
            answer.room - (kept if number else 0),
            start=place.cut if number == 0 else WHOLE,
            facts=facts_of(entity, past=past),
            title=title_of(entity) + (f", version {entity.version}, {span(entity)}" if past else ""),
            force=number == 0,
        )
        if part is None or (part.rest is not None and number):
            return number
        added = answer.add("entities", part.value, part.text)
        assert added
        if part.rest is not None:
            return part.rest
    return len(page.entities)


def _cursor_room(names: Sequence[str], question: Sequence[Any]) -> int:
    """The characters of the longest cursor that may be needed behind one of these names."""
    longest = max(names, key=lambda name: len(msgspec.json.encode(name)))  # whose characters may need escapes
    return len(cursors.made(replace(FARTHEST, after=longest), *question))
