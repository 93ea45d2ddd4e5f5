"""Tools that search."""

from __future__ import annotations

from typing import Annotated, Any

from mcp_types import CallToolResult
from msgspec import Meta, to_builtins
from msgspec.structs import replace

from unstuck_memory.mcp.answer import Answer, AnswerTooSmall
from unstuck_memory.mcp.served import Served
from unstuck_memory.mcp.shown import add_relation, entity_part, title_of
from unstuck_memory.mcp.tool import READS, tool
from unstuck_memory.mcp.tools.fields import (
    Arguments,
    Bounded,
    Cursor,
    Detail,
    Limit,
    Share,
    ShownEntity,
    ShownRelation,
)
from unstuck_memory.search import SEMANTIC_WEIGHT, SearchAnswer, SearchHit

LIMIT = 10
WHY = {
    "embedding_service_not_configured": "no provider of embeddings is configured",
    "query_embedding_failed": "the provider gave no vector for the query in time",
    "no_embeddings_available": "nothing is embedded yet",
}


class ShownHit(ShownEntity, frozen=True, kw_only=True):
    rank: int
    score: float
    keyword: float | None = None
    semantic: float | None = None
    matched: int | None = None  # which of the observations


class Hits(Bounded, frozen=True, kw_only=True):
    entities: list[ShownHit]
    relations: list[ShownRelation]
    searchType: str  # noqa: N815
    fallbackReason: str | None = None  # noqa: N815
    coverage: dict[str, int] | None = None
    dropped: int


class SearchNodes(Arguments, frozen=True, kw_only=True):
    query: str
    limit: Limit = None
    cursor: Cursor = None
    detail: Detail = None


@tool(
    group="core",
    takes=SearchNodes,
    answers=Hits,
    hints=READS,
    description="""Search by words in names, types and observations; what has any of the words is found, the best first. Use it when you
    know words that were stored, such as a name.""",
)
async def search_nodes(served: Served, given: SearchNodes) -> CallToolResult:
    found = await served.search.find(
        given.query, mode="keyword", limit=given.limit or LIMIT, cursor=given.cursor
    )
    return await _shown(served, found, names_only=given.detail == "names")


class SemanticSearch(Arguments, frozen=True, kw_only=True):
    query: str
    limit: Limit = None
    min_similarity: Annotated[float, Meta(ge=0, le=1, description="(1 + cosine) / 2")] | None = None
    entity_types: list[str] | None = None
    hybrid_search: Annotated[bool, Meta(description="by words too, default true")] | None = None
    semantic_weight: Share = None
    cursor: Cursor = None
    detail: Detail = None


@tool(
    group="core",
    takes=SemanticSearch,
    answers=Hits,
    hints=READS,
    description="""Search by meaning and by words. Use it to recall: at the start of a task, when somebody mentions a person, project or
    preference, and before you store something. Ask in natural language.""",
)
async def semantic_search(served: Served, given: SemanticSearch) -> CallToolResult:
    found = await served.search.find(
        given.query,
        mode="semantic" if given.hybrid_search is False else "hybrid",
        limit=given.limit or LIMIT,
        cursor=given.cursor,
        min_similarity=given.min_similarity,
        semantic_weight=SEMANTIC_WEIGHT if given.semantic_weight is None else given.semantic_weight,
        entity_types=given.entity_types,
    )
    return await _shown(served, found, names_only=given.detail == "names")


async def _shown(served: Served, found: SearchAnswer, *, names_only: bool) -> CallToolResult:
    """Every hit has an equal share of the answer, the observation that matched first, so that no long one hides the others."""
    hits = found.hits
    relations = []
    if hits and not names_only:
        names = {hit.entity.name for hit in hits}
        relations = list((await served.memory.open_nodes(sorted(names))).relations)
        relations.sort(key=lambda one: -((one.from_ in names) + (one.to in names)))
    longest = max((len(hit.cursor) for hit in hits), default=0)
    answer = Answer(served.budget, "entities", "relations", cursor=longest, **_facts(found))
    answer.note(_how(found))
    kept = answer.room // 3 if relations else 0
    shown = 0
    for number, hit in enumerate(hits):
        share = (answer.room - kept) // (len(hits) - number)
        if not _add(answer, hit, share, names_only=names_only):
            break
        shown = number + 1
    if hits and not shown:
        raise AnswerTooSmall(served.budget)
    left = sum(not add_relation(answer, relation) for relation in relations)
    if left:
        answer.note(f"{left} more relations: open_nodes shows those of an entity")
    cursor = hits[shown - 1].cursor if shown < len(hits) else found.next_cursor
    return answer.result(truncated=left > 0, next_cursor=cursor)


def _add(answer: Answer, hit: SearchHit, share: int, *, names_only: bool) -> bool:
    facts: dict[str, Any] = {"rank": hit.rank, "score": round(hit.score, 4)}
    facts |= {
        name: round(number, 4)
        for name, number in (("keyword", hit.keyword), ("semantic", hit.semantic))
        if number is not None
    }
    title = f"{hit.rank}. {title_of(hit.entity)}, score {hit.score:.2f}"
    entity = hit.entity
    if not names_only:
        if hit.observation is not None:
            others = [text for text in entity.observations if text != hit.observation]
            entity = replace(entity, observations=(hit.observation, *others))
        part = entity_part(entity, min(share, answer.room), facts=facts, title=title, force=True)
        if part is not None:
            if hit.observation is not None:
                part.value["matched"] = 0
            return answer.add("entities", part.value, part.text)
    return answer.add("entities", {"name": entity.name, "entityType": entity.entity_type} | facts, title)


def _facts(found: SearchAnswer) -> dict[str, Any]:
    facts = {
        "searchType": found.mode,
        "fallbackReason": found.reason,
        "provider": found.provider,
        "coverage": to_builtins(found.coverage),
        "dropped": found.dropped,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _how(found: SearchAnswer) -> str:
    parts = [f"{len(found.hits)} found by {found.mode} search"]
    if found.reason is not None:
        parts.append(f"not by {found.requested} search, because {WHY[found.reason]}")
    if found.coverage is not None and found.coverage.embedded < found.coverage.entities:
        parts.append(f"{found.coverage.embedded} of {found.coverage.entities} entities are embedded")
    if found.dropped:
        parts.append(f"{found.dropped} were below min_similarity")
    return "; ".join(parts)
