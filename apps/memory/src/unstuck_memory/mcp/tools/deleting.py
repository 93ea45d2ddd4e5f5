"""Tools that delete. What they delete stays in the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp_types import CallToolResult
from msgspec import to_builtins

from unstuck_memory.mcp.answer import Answer
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.shown import named
from unstuck_memory.mcp.tool import DELETES, tool
from unstuck_memory.mcp.tools.fields import Answered, Arguments, Key
from unstuck_memory.mcp.tools.written import Written, items_answer, observed
from unstuck_memory.values import Observations, RelationKey


class DeletedArgument(Arguments, frozen=True, kw_only=True):
    entityName: str  # noqa: N815
    observations: list[str]


class DeleteObservations(Arguments, frozen=True, kw_only=True):
    deletions: list[DeletedArgument]


@tool(
    group="core",
    takes=DeleteObservations,
    answers=Written,
    hints=DELETES,
    description="""Delete observations, word for word. Use it when they were never true; what has changed is better replaced. Older
    versions keep them.""",
)
async def delete_observations(served: Served, given: DeleteObservations) -> CallToolResult:
    written = await served.memory.delete_observations(
        [
            Observations(entity_name=item.entityName, contents=tuple(item.observations))
            for item in given.deletions
        ]
    )
    names = [item.entityName for item in given.deletions]
    items = [observed(name, change) for name, change in zip(names, written.changes, strict=True)]
    return items_answer(served, written.changes, items, scheduled=written.scheduled)


class DeleteEntities(Arguments, frozen=True, kw_only=True):
    entityNames: list[str]  # noqa: N815


class Deleted(Answered, frozen=True, kw_only=True):
    items: list[dict[str, Any]]
    deleted: int
    notFound: int  # noqa: N815


@tool(
    group="core",
    takes=DeleteEntities,
    answers=Deleted,
    hints=DELETES,
    description="""Delete entities and all their relations. Use it when they should be forgotten, not for corrections. Their history
    stays.""",
)
async def delete_entities(served: Served, given: DeleteEntities) -> CallToolResult:
    found = await served.memory.delete_entities(given.entityNames)
    return _deleted(served, [({"name": name}, named(name), there) for name, there in found.items()])


class DeleteRelations(Arguments, frozen=True, kw_only=True):
    relations: list[Key]


@tool(
    group="core",
    takes=DeleteRelations,
    answers=Deleted,
    hints=DELETES,
    description="Delete relations. Use it when entities have nothing to do with each other any more. Their history stays.",
)
async def delete_relations(served: Served, given: DeleteRelations) -> CallToolResult:
    keys = [
        RelationKey(from_=key.from_, to=key.to, relation_type=key.relationType) for key in given.relations
    ]
    found = await served.memory.delete_relations(keys)
    return _deleted(
        served,
        [
            (to_builtins(key), f"{named(key.from_)} -[{named(key.relation_type)}]-> {named(key.to)}", there)
            for key, there in zip(keys, found, strict=True)
        ],
    )


def _deleted(served: Served, items: Sequence[tuple[dict[str, Any], str, bool]]) -> CallToolResult:
    """Those that were not there come first, because somebody has to know."""
    gone = sum(there for _, _, there in items)
    answer = Answer(served.budget, "items", deleted=gone, notFound=len(items) - gone)
    answer.note(f"deleted {gone}, not found {len(items) - gone}")
    truncated = False
    for value, name, there in sorted(items, key=lambda item: item[2]):
        text = f"{'deleted' if there else 'not found'}: {name}"
        truncated = not answer.add("items", value | {"deleted": there}, text)
        if truncated:
            break
    return answer.result(truncated=truncated)
