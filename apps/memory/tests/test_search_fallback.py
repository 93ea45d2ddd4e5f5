"""When there is no vector to search by, words are searched by, and the answer says why."""

import asyncio

import pytest
from support_memory.conformance.given import created, new
from support_memory.searching import Placed, found, place
from unstuck_memory.embeddings.providers.openai import OpenAIProvider
from unstuck_memory.errors import InvalidInput
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.search import Mode, Search
from unstuck_memory.values import Coverage

pytestmark = pytest.mark.anyio

MODES: tuple[Mode, ...] = ("semantic", "hybrid")
UNREACHABLE = "http://127.0.0.1:9/v1"  # where nobody listens


@pytest.fixture
async def graph(file_graph: SqliteGraph) -> SqliteGraph:
    ann, _ = await created(file_graph, "default", new("Ann", "amber"), new("Bob", "beryl"))
    await place(file_graph, ann, 0.5, 0.8)
    return file_graph


@pytest.mark.parametrize("mode", MODES)
async def test_without_a_provider_the_answer_is_by_words(graph: SqliteGraph, mode: Mode) -> None:
    answer = await Search(graph, None, "default").find("beryl", mode=mode)
    assert found(answer) == ["Bob"]
    assert (answer.mode, answer.requested, answer.reason) == (
        "keyword",
        mode,
        "embedding_service_not_configured",
    )
    assert (answer.provider, answer.model, answer.coverage) == (None, None, None)


@pytest.mark.parametrize("mode", MODES)
async def test_a_provider_that_fails_costs_only_the_meaning(
    graph: SqliteGraph, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Placed()
    provider.error = RuntimeError("out of order")
    search = Search(graph, provider, "default")
    answer = await search.find("beryl", mode=mode)
    assert found(answer) == ["Bob"]
    assert (answer.mode, answer.requested, answer.reason) == ("keyword", mode, "query_embedding_failed")
    assert answer.coverage == Coverage(entities=2, embedded=1)
    assert "a question got no vector from placed: out of order" in caplog.text
    provider.error = None
    answer = await search.find("beryl", mode=mode)
    assert (answer.mode, answer.reason) == (mode, None)
    assert "Ann" in found(answer)


async def test_a_provider_that_cannot_be_reached_costs_only_the_meaning(graph: SqliteGraph) -> None:
    """Not even its dimension is known then, and so no coverage."""
    provider = OpenAIProvider(None, base_url=UNREACHABLE, model="local")
    answer = await Search(graph, provider, "default").find("beryl")
    await provider.aclose()
    assert found(answer) == ["Bob"]
    assert (answer.mode, answer.reason, answer.provider) == ("keyword", "query_embedding_failed", "openai")
    assert (answer.model, answer.coverage) == (None, None)


async def test_a_provider_that_is_too_slow_is_not_waited_for(graph: SqliteGraph) -> None:
    provider = Placed()
    provider.stalled = asyncio.Event()
    async with asyncio.timeout(20):
        answer = await Search(graph, provider, "default", patience=0.05).find("beryl")
    assert (found(answer), answer.reason) == (["Bob"], "query_embedding_failed")
    assert provider.calls == ["beryl"]


async def test_unless_it_was_asked_to_a_search_does_not_wait_for_long(graph: SqliteGraph) -> None:
    """Two seconds; that is far less than what is waited for here, on any machine."""
    provider = Placed()
    provider.stalled = asyncio.Event()
    async with asyncio.timeout(60):
        answer = await Search(graph, provider, "default").find("beryl")
    assert (found(answer), answer.reason) == (["Bob"], "query_embedding_failed")


async def test_without_any_embeddings_the_provider_is_not_asked(file_graph: SqliteGraph) -> None:
    await created(file_graph, "default", new("Bob", "beryl"))
    [stranger] = await created(file_graph, "other", new("stranger", "beryl"))
    await place(file_graph, stranger, 0.9)
    provider = Placed()
    for mode in MODES:
        answer = await Search(file_graph, provider, "default").find("beryl", mode=mode)
        assert found(answer) == ["Bob"]
        assert (answer.mode, answer.reason) == ("keyword", "no_embeddings_available")
        assert answer.coverage == Coverage(entities=1, embedded=0)
    assert provider.calls == []


async def test_a_search_by_words_asks_no_provider(graph: SqliteGraph) -> None:
    provider = Placed()
    search = Search(graph, provider, "default")
    answer = await search.find("beryl", mode="keyword")
    assert (answer.mode, answer.reason, answer.coverage, provider.calls) == ("keyword", None, None, [])
    await search.find("beryl")
    answer = await search.find("beryl", mode="keyword")
    assert answer.coverage == Coverage(entities=2, embedded=1)


async def test_the_pages_of_a_search_ask_for_its_vector_once(graph: SqliteGraph) -> None:
    provider = Placed()
    search = Search(graph, provider, "default")
    first = await search.find("amber or beryl", limit=1)
    second = await search.find("amber or beryl", limit=1, cursor=first.next_cursor)
    assert sorted(found(first) + found(second)) == ["Ann", "Bob"]
    assert provider.calls == ["amber or beryl"]


async def test_a_search_goes_on_in_the_mode_in_which_it_began(graph: SqliteGraph) -> None:
    await created(graph, "default", new("Cid", "beryl"))
    provider = Placed()
    provider.error = RuntimeError("out of order")
    search = Search(graph, provider, "default")
    by_words = await search.find("beryl", limit=1)
    provider.error = None
    rest = await search.find("beryl", limit=1, cursor=by_words.next_cursor)
    assert (rest.mode, rest.reason, rest.next_cursor) == ("keyword", "query_embedding_failed", None)
    assert sorted(found(by_words) + found(rest)) == ["Bob", "Cid"]

    hybrid = await search.find("beryl", limit=1)
    provider.error = RuntimeError("out of order")
    fresh = Search(graph, provider, "default")
    with pytest.raises(
        InvalidInput, match=r"hybrid search, which cannot go on now \(query_embedding_failed\)"
    ):
        await fresh.find("beryl", cursor=hybrid.next_cursor)
