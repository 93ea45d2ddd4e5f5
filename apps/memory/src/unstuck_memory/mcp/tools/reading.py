"""Tools that read the graph."""

from __future__ import annotations

from typing import Annotated, Any

from mcp_types import CallToolResult
from msgspec import Meta, to_builtins
from msgspec.structs import replace

from unstuck_memory import checks
from unstuck_memory.answers import DecayInfo, KnowledgeGraph
from unstuck_memory.errors import NotFound
from unstuck_memory.mcp.answer import Answer, AnswerTooSmall, cost
from unstuck_memory.mcp.pages import graph_page
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.shown import add_relation, moment, named
from unstuck_memory.mcp.tool import READS, tool
from unstuck_memory.mcp.tools.fields import (
    Answered,
    Arguments,
    Cursor,
    Detail,
    GraphPage,
    Key,
    Limit,
    ShownRelation,
)

PAGE = 100


class ReadGraph(Arguments, frozen=True, kw_only=True):
    random_string: str | None = None
    limit: Limit = None
    cursor: Cursor = None
    detail: Detail = None


class WholeGraph(GraphPage, frozen=True, kw_only=True):
    total: int


@tool(
    group="core",
    takes=ReadGraph,
    answers=WholeGraph,
    hints=READS,
    description="""Read all entities in order of their names, with their relations, page by page. Use it for an overview of a small
    memory, or with detail "names"; to recall something, search instead.""",
)
async def read_graph(served: Served, given: ReadGraph) -> CallToolResult:
    async def fetch(after: str | None, limit: int, relations: int) -> KnowledgeGraph:
        return await served.memory.read_graph(limit=limit, after=after, relations=relations)

    total = (await served.memory.size()).entities
    return await graph_page(
        served.budget,
        fetch,
        ["read_graph", given.detail],
        cursor=given.cursor,
        limit=given.limit or PAGE,
        names_only=given.detail == "names",
        lines=[f"{total:,} entities in the memory"],
        total=total,
    )


class OpenNodes(Arguments, frozen=True, kw_only=True):
    names: list[str]
    limit: Limit = None
    cursor: Cursor = None
    detail: Detail = None


class Opened(GraphPage, frozen=True, kw_only=True):
    missing: int | None = None
    notFound: list[str] | None = None  # noqa: N815


@tool(
    group="core",
    takes=OpenNodes,
    answers=Opened,
    hints=READS,
    description="""Read entities by their exact names: all observations, and all relations that have one of them at either end. Use it
    after a search, and before you change an entity.""",
)
async def open_nodes(served: Served, given: OpenNodes) -> CallToolResult:
    names = sorted(checks.names("names", given.names))
    there = await served.memory.open_nodes(names, relations=0)
    found = [entity.name for entity in there.entities]

    async def fetch(after: str | None, limit: int, relations: int) -> KnowledgeGraph:
        behind = [name for name in found if after is None or name > after]
        page = await served.memory.open_nodes(behind[:limit], relations=relations)
        return page if len(behind) <= limit else replace(page, next_after=behind[limit - 1])

    facts: dict[str, Any] = {}
    lines = []
    if given.cursor is None and (missing := sorted(set(names) - set(found))):
        shown = _as_many_as_fit(missing, served.budget // 10)
        lines = [f"not found: {', '.join(map(named, shown))}{'' if shown == missing else ' …'}"]
        facts = {"notFound": shown, "missing": len(missing)}
    return await graph_page(
        served.budget,
        fetch,
        ["open_nodes", names, given.detail],
        cursor=given.cursor,
        limit=given.limit or checks.PAGE,
        names_only=given.detail == "names",
        lines=lines,
        **facts,
    )


def _as_many_as_fit(names: list[str], room: int) -> list[str]:
    found = []
    for name in names:
        if (room := room - cost(name)) < 0:
            break
        found.append(name)
    return found


class OneRelation(Answered, frozen=True, kw_only=True):
    relations: list[ShownRelation]


@tool(
    takes=Key,
    answers=OneRelation,
    hints=READS,
    description="Read one relation: strength, confidence, metadata. Use it when you know its ends and its type.",
)
async def get_relation(served: Served, given: Key) -> CallToolResult:
    found = await served.memory.get_relation(given.from_, given.to, given.relationType)
    if found is None:
        raise no_relation(given)
    answer = Answer(served.budget, "relations")
    if not add_relation(answer, found):
        raise AnswerTooSmall(served.budget)
    return answer.result()


def no_relation(key: Key) -> NotFound:
    return NotFound(
        f"there is no relation {key.relationType!r} from {key.from_!r} to {key.to!r}: one that was created is needed; "
        "open_nodes shows the relations of an entity"
    )


class GraphAtTime(Arguments, frozen=True, kw_only=True):
    timestamp: Annotated[int, Meta(description="milliseconds since 1970")]
    limit: Limit = None
    cursor: Cursor = None
    detail: Detail = None


@tool(
    takes=GraphAtTime,
    answers=GraphPage,
    hints=READS,
    description="Read the graph as it was at a time, page by page. Use it to find out what was known then.",
)
async def get_graph_at_time(served: Served, given: GraphAtTime) -> CallToolResult:
    at = checks.timestamp("timestamp", given.timestamp)

    async def fetch(after: str | None, limit: int, relations: int) -> KnowledgeGraph:
        return await served.memory.get_graph_at_time(at, limit=limit, after=after, relations=relations)

    return await graph_page(
        served.budget,
        fetch,
        ["get_graph_at_time", at, given.detail],
        cursor=given.cursor,
        limit=given.limit or PAGE,
        names_only=given.detail == "names",
        past=True,
        lines=[f"as of {moment(at)}"],
    )


class DecayedGraph(Arguments, frozen=True, kw_only=True):
    reference_time: Annotated[int, Meta(description="milliseconds since 1970; now")] | None = None
    decay_factor: Annotated[float, Meta(le=0, description="per millisecond; half-life 30 days")] | None = None
    limit: Limit = None
    cursor: Cursor = None


class Decayed(GraphPage, frozen=True, kw_only=True):
    decay_info: dict[str, Any]


@tool(
    takes=DecayedGraph,
    answers=Decayed,
    hints=READS,
    description="""Read the graph with the confidence that its relations have left: it fades while nobody states them again. Use it to
    judge which relations can still be relied on.""",
)
async def get_decayed_graph(served: Served, given: DecayedGraph) -> CallToolResult:
    at = given.reference_time
    if at is not None:
        at = checks.timestamp("reference_time", at)
    info: DecayInfo | None = None

    async def fetch(after: str | None, limit: int, relations: int) -> KnowledgeGraph:
        nonlocal info
        found = await served.memory.get_decayed_graph(
            reference_time=at, decay_factor=given.decay_factor, limit=limit, after=after, relations=relations
        )
        info = info or found.decay_info
        return found.graph

    await fetch(None, 1, 0)
    assert info is not None
    return await graph_page(
        served.budget,
        fetch,
        ["get_decayed_graph", at, given.decay_factor],
        cursor=given.cursor,
        limit=given.limit or PAGE,
        lines=[f"confidence that is left as of {moment(info.reference_time)}"],
        decay_info=to_builtins(info),
    )
