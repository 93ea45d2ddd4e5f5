"""Search on Neo4j: the same hits, parts and pages as on a file."""

import pytest
from support_memory.conformance.given import created, new
from support_memory.places import Place
from support_memory.searching import Placed, found, place, place_all
from unstuck_memory.graph import Graph
from unstuck_memory.search import Mode, Search

# The first of them waits for the server's start, too.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.fixture(name="place")
def neo4j_is_the_place(neo4j_place: Place) -> Place:
    return neo4j_place


async def test_search_finds_by_words_by_meaning_and_by_both(graph: Graph, project: str) -> None:
    await created(graph, project, *(new(f"filler {number}", "nothing of the kind") for number in range(30)))
    word, both, sense, _ = await created(
        graph,
        project,
        new("word", "amber"),
        new("both", "amber"),
        new("sense", "resin"),
        new("bare", "AMBER ring"),
    )
    await place(graph, word, -0.2, -0.3)
    await place(graph, both, 0.1, 0.5)
    await place(graph, sense, 0.7, 0.6)
    search = Search(graph, Placed(), project)

    assert set(found(await search.find("amber", mode="keyword"))) == {"word", "both", "bare"}
    by_meaning = await search.find("amber", mode="semantic")
    assert found(by_meaning) == ["sense", "both", "word"]
    assert [hit.score for hit in by_meaning.hits] == pytest.approx([0.7, 0.5, -0.2], abs=1e-4)
    hybrid = await search.find('amber" (*')
    assert set(found(hybrid)) == {"word", "both", "sense", "bare"}
    for hit in hybrid.hits:
        assert hit.keyword is not None
        if hit.semantic is not None:
            assert hit.score == pytest.approx(0.6 * hit.semantic + 0.4 * hit.keyword)
    matched = {hit.entity.name: hit.observation for hit in hybrid.hits}
    assert matched == {"word": "amber", "both": "amber", "sense": None, "bare": "AMBER ring"}


@pytest.mark.parametrize("mode", ["keyword", "semantic", "hybrid"])
async def test_pages_have_each_entity_once(graph: Graph, project: str, mode: Mode) -> None:
    for kind, words in (("words", "amber"), ("both", "amber"), ("meaning", "resin")):
        some = await created(graph, project, *(new(f"{kind} {number}", words) for number in range(8)))
        if kind != "words":
            await place_all(graph, some, 0.5)
    search = Search(graph, Placed(), project)
    whole = found(await search.find("amber", mode=mode, limit=100))
    assert len(whole) == (24 if mode == "hybrid" else 16)
    pages: list[str] = []
    cursor = None
    while len(pages) < 30:
        answer = await search.find("amber", mode=mode, limit=5, cursor=cursor)
        pages += found(answer)
        if (cursor := answer.next_cursor) is None:
            break
    assert pages == whole
