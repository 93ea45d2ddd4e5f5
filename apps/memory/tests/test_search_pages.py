"""Pages of a search: each entity once, in one order, behind cursors that belong to one question."""

from typing import Any

import pytest
from support_memory.conformance.given import changed, created, new
from support_memory.searching import Placed, found, place_all
from unstuck_memory.cursors import made
from unstuck_memory.errors import InvalidInput
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.search import Mode, Search

pytestmark = pytest.mark.anyio

MANY = 60


@pytest.fixture
async def search(file_graph: SqliteGraph) -> Search:
    """Some with words, some with vectors, some with both; many with the same score."""
    entities = await created(
        file_graph,
        "default",
        *(
            new(f"e{number:02}", "amber " * (1 + number % 3) if number % 2 else "resin")
            for number in range(MANY)
        ),
    )
    for cosine in range(7):
        some = [entity for number, entity in enumerate(entities) if number % 5 and number % 7 == cosine]
        await place_all(file_graph, some, cosine / 10)
    return Search(file_graph, Placed(), "default")


async def _pages(search: Search, size: int, **facts: Any) -> list[list[str]]:
    pages, cursor = [], None
    while True:
        answer = await search.find("amber", limit=size, cursor=cursor, **facts)
        pages.append(found(answer))
        if (cursor := answer.next_cursor) is None:
            return pages


@pytest.mark.parametrize(("mode", "count"), [("keyword", 30), ("semantic", 48), ("hybrid", 54)])
async def test_pages_have_each_entity_once_in_the_order_of_one_large_page(
    search: Search, mode: Mode, count: int
) -> None:
    [whole] = await _pages(search, 1000, mode=mode)
    assert len(set(whole)) == len(whole) == count
    pages = await _pages(search, 7, mode=mode)
    assert [len(page) for page in pages[:-1]] == [7] * (len(pages) - 1)
    assert [name for page in pages for name in page] == whole


async def test_a_page_may_begin_behind_any_hit_and_have_another_size(search: Search) -> None:
    """For who shows only some of the hits."""
    whole = await search.find("amber", limit=20)
    rest = await search.find("amber", limit=5, cursor=whole.hits[3].cursor)
    assert rest.hits == whole.hits[4:9]
    assert rest.hits[0].rank == 5
    assert whole.hits[-1].cursor == whole.next_cursor


async def test_what_is_written_meanwhile_brings_nothing_twice(
    file_graph: SqliteGraph, search: Search
) -> None:
    first = await search.find("amber", limit=10)
    await changed(file_graph, "default", found(first)[0], "amber once more")
    await created(file_graph, "default", new("new", "amber"))
    rest = await search.find("amber", limit=50, cursor=first.next_cursor)
    gone = {hit.entity.uid for hit in first.hits[1:]}
    assert not gone & {hit.entity.uid for hit in rest.hits}


async def test_a_search_ends_after_a_thousand_hits(file_graph: SqliteGraph) -> None:
    for kind, words in (("words", "amber"), ("both", "amber"), ("meaning", "resin")):
        some = await created(
            file_graph, "default", *(new(f"{kind} {number}", words) for number in range(600))
        )
        if kind != "words":
            await place_all(file_graph, some, 0.5)
    search = Search(file_graph, Placed(), "default")
    modes: tuple[Mode, ...] = ("keyword", "semantic", "hybrid")
    for mode in modes:
        pages = await _pages(search, 700, mode=mode)
        assert [len(page) for page in pages] == [700, 300], mode


async def test_a_cursor_of_another_question_is_refused(search: Search) -> None:
    cursor = (await search.find("amber", limit=5)).next_cursor
    others: tuple[dict[str, Any], ...] = (
        {"query": "beryl"}, {"mode": "keyword"}, {"min_similarity": 0.0}, {"semantic_weight": 0.5}, {"entity_types": ["thing"]},
    )  # fmt: skip
    for other in others:
        with pytest.raises(
            InvalidInput, match=r"^cursor is '.*': it belongs to another question; pass next_cursor"
        ):
            await search.find(**{"query": "amber", "cursor": cursor, **other})


async def test_a_cursor_of_another_project_is_refused(file_graph: SqliteGraph, search: Search) -> None:
    cursor = (await search.find("amber", limit=5)).next_cursor
    with pytest.raises(InvalidInput, match="belongs to another question"):
        await Search(file_graph, Placed(), "other").find("amber", cursor=cursor)


async def test_what_is_no_cursor_is_refused_on_one_line(search: Search) -> None:
    made_by_others = [made([1, 2, 3]), made("Ann")]
    bad: list[Any] = ["", "x", "{}", "ä" * 8, "A" * 5_000, "W10", 7, ["x"], "a\ud800", *made_by_others]
    for cursor in bad:
        with pytest.raises(InvalidInput, match=r"^cursor .*leave cursor out to begin again$") as refused:
            await search.find("amber", cursor=cursor)
        assert "\n" not in str(refused.value), cursor
