"""What became of the items of a write. The answer is short, because the model has just written what it would read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mcp_types import CallToolResult
from msgspec import Struct

from unstuck_memory.mcp.answer import Answer, failure
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.shown import named
from unstuck_memory.mcp.tools.fields import Answered, Key
from unstuck_memory.values import EntityChange, RelationChange

LATER = "Their embeddings are not scheduled yet, because the queue cannot be reached; a worker does it later."


class Written(Answered, frozen=True, kw_only=True):
    """What became of each item; those with a problem come first."""

    items: list[dict[str, Any]]
    created: int
    changed: int
    unchanged: int
    problems: int
    scheduled: bool = True


def items_answer(
    served: Served,
    changes: Sequence[EntityChange] | Sequence[RelationChange],
    items: Sequence[dict[str, Any]],
    *,
    scheduled: bool = True,
    ignored: str = "",
) -> CallToolResult:
    """What became of each item. If nothing could be written, that is an error."""
    problems = [change.problem for change in changes if change.problem is not None]
    if problems and len(problems) == len(changes):
        more = f" (and {len(problems) - 1} more like it)" if len(problems) > 1 else ""
        return failure(problems[0] + more, served.budget)
    created = sum(change.created for change in changes)
    changed = sum(change.changed and not change.created for change in changes)
    unchanged = len(changes) - created - changed - len(problems)
    answer = Answer(
        served.budget,
        "items",
        created=created,
        changed=changed,
        unchanged=unchanged,
        problems=len(problems),
        scheduled=scheduled,
    )
    answer.note(f"created {created}, changed {changed}, unchanged {unchanged}, problems {len(problems)}")
    if not scheduled:
        answer.note(LATER)
    if ignored:
        answer.note(ignored)
    for item in sorted(items, key=lambda item: "problem" not in item):
        if not answer.add("items", item, _item_text(item)):
            return answer.result(truncated=True)
    return answer.result()


def _item_text(item: dict[str, Any]) -> str:
    if (problem := item.get("problem")) is not None:
        return f"problem: {problem}"
    if "from" in item:
        name = f"{named(item['from'])} -[{named(item['relationType'])}]-> {named(item['to'])}"
    else:
        name = named(item.get("name") or item["entityName"])
    facts = [f"{item[key]} observations {key}" for key in ("added", "deleted") if item.get(key)]
    if "similar" in item:
        facts.append(f"there is also {named(item['similar'])}: if it is the same, merge them")
    if "note" in item:
        facts.append(item["note"])
    return f"{item['status']}: {name}" + (f" ({'; '.join(facts)})" if facts else "")


def without_nothing(**facts: Any) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None}


def ignored_line(items: Iterable[Struct]) -> str:
    """A line about arguments that the original took and that mean nothing here."""
    own = {"id", "version", "createdAt", "updatedAt", "validFrom", "validTo"}
    given = {
        name
        for item in items
        for name in item.__struct_fields__
        if (name in own or (name in {"strength", "confidence", "metadata"} and not isinstance(item, Key)))
        and getattr(item, name) is not None
    }
    return f"not stored, the memory has its own: {', '.join(sorted(given))}" if given else ""


def observed(name: str, change: EntityChange) -> dict[str, Any]:
    return without_nothing(
        entityName=name,
        version=change.entity.version if change.entity else None,
        status=None if change.problem else "changed" if change.changed else "unchanged",
        added=len(change.added),
        deleted=len(change.deleted),
        problem=change.problem,
    )
