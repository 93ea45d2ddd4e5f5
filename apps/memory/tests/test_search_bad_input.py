"""Every character of a query is text; what no search can take is refused on one line."""

import math
from typing import Any

import pytest
from support_memory.conformance.given import created, new
from support_memory.conformance.keyword import SYNTAX
from support_memory.searching import Placed, found, place
from unstuck_memory.errors import InvalidInput
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.search import Search

pytestmark = pytest.mark.anyio

SHARES = [1.1, -0.1, math.nan, math.inf, "1", True]
RANGES: dict[str, tuple[list[Any], str]] = {
    "query": (["", " \n\t", "a\0b", "a\ud800", None, 7, ["amber"], "x" * 10_001, "amber " * 17_000], "1 to 10,000 characters"),
    "limit": ([0, -1, 1.5, 10**9, None, "10", True], "a whole number from 1 to 1000"),
    "min_similarity": (SHARES, "a number from 0 to 1"),
    "semantic_weight": ([*SHARES, None], "a number from 0 to 1"),
    "mode": (["", "fuzzy", "KEYWORD", None, 1, ["keyword"]], "keyword, semantic or hybrid"),
    "entity_types": (["person", 7, [""], [None], ["x" * 201]], "1"),
}  # fmt: skip


@pytest.fixture
async def search(file_graph: SqliteGraph) -> Search:
    ann, bob = await created(file_graph, "default", new("Ann", "rides horses"), new("Bob", "cooks"))
    await place(file_graph, ann, 0.2)
    await place(file_graph, bob, 0.1)
    return Search(file_graph, Placed(), "default")


@pytest.mark.parametrize("field", RANGES)
async def test_what_is_out_of_range_is_refused_on_one_line(search: Search, field: str) -> None:
    values, allowed = RANGES[field]
    for bad in values:
        with pytest.raises(InvalidInput) as refused:
            await search.find(**{"query": "horses", field: bad})
        message = str(refused.value)
        assert message.startswith(field), repr(bad)[:50]
        assert allowed in message, repr(bad)[:50]
        assert "\n" not in message
        assert len(message) < 250


async def test_every_character_of_a_query_is_text(search: Search) -> None:
    for text in (*SYNTAX, "a:b", 'name:"x" OR *', "\U0001f469\u200d\U0001f680", "-- DROP TABLE entity"):
        if text.strip():
            assert found(await search.find(text, mode="keyword")) == [], text
            assert found(await search.find(text)) == ["Ann", "Bob"], text
        for query in (f"{text} horses", f"horses {text}", f"horses{text} "):
            assert found(await search.find(query, mode="keyword")) in (["Ann"], []), query
        assert found(await search.find(f"{text} horses", mode="keyword")) == ["Ann"], text


async def test_a_long_query_is_answered(search: Search) -> None:
    query = " ".join(f"word{number}" for number in range(1_000)) + " horses"
    assert len((await search.find(query[:10_000])).hits) == 2
    assert found(await search.find(("horses " * 1_500)[:10_000], mode="keyword")) == ["Ann"]
