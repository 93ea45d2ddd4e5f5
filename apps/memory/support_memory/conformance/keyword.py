"""Search by words: every character is text, and a score is comparable from query to query."""

from collections.abc import Awaitable, Callable

from unstuck_memory.graph import Graph

from support_memory.conformance.given import changed, created, more, new

SYNTAX = [
    '"', '""', '"foo', "foo(", ")", "*", "a:b", "name:foo", "OR", "AND", "NOT", "NEAR", "NEAR(foo)", "foo*", "foo~", "^foo", "+foo",
    "-foo", "!", "&&", "||", "{foo}", "[foo", "foo\\", "\\", "/foo/", "'", "''", "\U0001f600", "?", "f?o", ";", "--", "%", "_", "", " ", "\t",
    "foo bar", "$foo", "日本", "…", "<a", "TO", "[a TO b]", "foo^4", "=", "\x7f",
]  # fmt: skip


async def _found(graph: Graph, project: str, *words: str, limit: int = 10, **facts: list[str]) -> list[str]:
    hits = await graph.keyword(project, words, limit, **facts)
    assert all(0.0 <= hit.score <= 1.0 for hit in hits), hits
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    entities = {one.uid: one.name for one in await graph.get_by_uid([hit.uid for hit in hits])}
    return [entities[hit.uid] for hit in hits]


async def test_any_word_in_name_type_or_observations_is_found(graph: Graph, project: str) -> None:
    await created(
        graph,
        project,
        new("zebra", "eats grass", kind="animal"),
        new("Ann", "rides a horse"),
        new("Bob", "saw a zebra", "owns an aquarium"),
        new("Cid", "sleeps"),
    )
    assert set(await _found(graph, project, "zebra")) == {"zebra", "Bob"}
    assert await _found(graph, project, "animal") == ["zebra"]
    assert await _found(graph, project, "aquarium") == ["Bob"]
    assert set(await _found(graph, project, "horse", "sleeps")) == {"Ann", "Cid"}
    assert await _found(graph, project, "unicorn") == []
    assert await _found(graph, project) == []


async def test_words_are_found_in_other_forms(graph: Graph, project: str) -> None:
    await created(graph, project, new("Ann", "owns two horses and is riding daily"))
    assert await _found(graph, project, "HORSE") == ["Ann"]
    assert await _found(graph, project, "rides") == ["Ann"]
    assert await _found(graph, project, "hor") == [], "not in parts"


async def test_every_character_is_text(graph: Graph, project: str) -> None:
    """A word never changes what another one finds, and is itself no pattern."""
    await created(graph, project, new("Ann", "rides horses"), new("Bob", "cooks"))
    for word in SYNTAX:
        assert await _found(graph, project, word) == [], word
        assert await _found(graph, project, "horses", word) == ["Ann"], word
        assert await _found(graph, project, word, "horses") == ["Ann"], word
        assert set(await _found(graph, project, word, "horses", word, "cooks")) == {"Ann", "Bob"}, word


async def test_words_with_punctuation_are_found_by_their_letters(graph: Graph, project: str) -> None:
    await created(
        graph,
        project,
        new("code", "call render( now"),
        new("ratio", "it is zinc:copper"),
        new("quote", 'she said "marvellous"'),
        new("mail", "write to ann@example.org"),
        new("street", "Straße 東京"),
    )
    assert await _found(graph, project, "render(") == ["code"]
    assert await _found(graph, project, "zinc:copper") == ["ratio"]
    assert await _found(graph, project, '"marvellous"') == ["quote"]
    assert await _found(graph, project, "ann@example.org") == ["mail"]
    assert await _found(graph, project, "straße") == ["street"]
    assert await _found(graph, project, "rend*") == []


async def test_more_of_the_words_is_a_better_match(graph: Graph, project: str) -> None:
    await created(graph, project, *(new(f"filler {number}", "nothing of the kind") for number in range(30)))
    await created(graph, project, new("all", "amber beryl coral"), new("some", "amber beryl and stones"))
    await created(graph, project, new("one", "amber and other stones"))

    hits = await graph.keyword(project, ["amber", "beryl", "coral"], 10)
    assert await _found(graph, project, "amber", "beryl", "coral") == ["all", "some", "one"]
    scores = [hit.score for hit in hits]
    assert scores[0] > scores[1] > scores[2] > 0.0
    assert 0.3 < scores[0] <= 1.0, "everything asked for in a few words is not far from the best"
    [often] = await created(
        graph, project, new("coral", *(f"coral coral coral {'coral ' * n}" for n in range(20)))
    )
    best = (await graph.keyword(project, ["coral"], 1))[0]
    assert best.uid == often.uid
    assert 0.6 < best.score <= 1.0


async def test_a_score_does_not_depend_on_how_many_words_are_asked_in_vain(
    graph: Graph, project: str
) -> None:
    """The most it could be grows with each word: who has one of many is no good match."""
    await created(graph, project, *(new(f"filler {number}", "nothing of the kind") for number in range(30)))
    await created(graph, project, new("Ann", "amber"), new("Bob", "beryl"))
    alone = (await graph.keyword(project, ["amber"], 5))[0].score
    of_two = (await graph.keyword(project, ["amber", "beryl"], 5))[0].score
    assert 0.0 < of_two < alone


async def test_types_are_applied_before_the_limit(graph: Graph, project: str) -> None:
    await created(graph, project, *(new(f"near {n}", "amber", kind="near") for n in range(60)))
    padding = " ".join(f"padding{n}" for n in range(50))
    await created(graph, project, *(new(f"far {n}", f"amber {padding}", kind="far") for n in range(3)))

    assert len(await _found(graph, project, "amber", limit=5)) == 5
    found = await _found(graph, project, "amber", limit=3, types=["far"])
    assert sorted(found) == ["far 0", "far 1", "far 2"]
    assert len(await _found(graph, project, "amber", limit=100, types=["far", "near"])) == 63
    assert await _found(graph, project, "amber", limit=3, types=["Far"]) == []


async def test_only_what_is_current_is_found_and_at_once(
    graph: Graph, project: str, another: Callable[[], Awaitable[Graph]]
) -> None:
    other = await another()
    await created(graph, project, new("Ann", "amber"))
    assert await _found(other, project, "amber") == ["Ann"]
    await changed(other, project, "Ann", "beryl")
    assert await _found(graph, project, "beryl") == ["Ann"]
    await graph.add_observations(project, [more("Ann", "coral", replaces=["amber"])])
    assert await _found(graph, project, "amber") == await _found(other, project, "amber") == []
    assert await _found(graph, project, "coral") == await _found(other, project, "coral") == ["Ann"]
    await graph.delete_entities(project, ["Ann"])
    assert await _found(graph, project, "coral") == await _found(other, project, "beryl") == []
    await created(graph, project, "Ann")
    assert await _found(graph, project, "coral") == []
    assert await _found(graph, project, "ann") == ["Ann"]


async def test_a_merged_entity_is_found_by_what_it_got(graph: Graph, project: str) -> None:
    await created(graph, project, new("Bob", "amber"), new("Bobby", "beryl"))
    await graph.merge_entities(project, "Bobby", "Bob")
    assert await _found(graph, project, "beryl") == ["Bob"]
    assert await _found(graph, project, "bobby") == []
