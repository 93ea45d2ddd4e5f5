"""Relations: they connect entities, not versions, and are unique by their ends and type."""

from typing import Any

import pytest
from unstuck_memory.errors import NotFound
from unstuck_memory.graph import Graph
from unstuck_memory.values import NewEntity

from support_memory.conformance.given import (
    FOREVER,
    changed,
    coherent,
    connected,
    created,
    key,
    new,
    related,
    relation,
)

METADATA: dict[str, Any] = {"a": 1, "list": [1, 2.5, None, True], "nested": {"ü": "\U0001f600 '$x'"}}


async def test_a_relation_comes_back_as_it_was_stated(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    before = await graph.now()
    [answer] = await graph.create_relations(
        project, [related("Ann", "Bob", strength=0.5, confidence=1.0, metadata=METADATA, changed_by="me")]
    )

    found = answer.relation
    assert found is not None
    assert (answer.created, answer.changed, answer.problem) == (True, True, None)
    assert (found.from_, found.to, found.relation_type) == ("Ann", "Bob", "knows")
    assert (found.strength, found.confidence, found.metadata) == (0.5, 1.0, METADATA)
    assert (found.version, found.valid_to, found.changed_by) == (1, None, "me")
    assert before <= found.created_at == found.updated_at == found.valid_from
    assert await graph.get_relation(project, key("Ann", "Bob")) == found
    assert await graph.relations_of(project, ["Ann"]) == [found]
    assert await graph.relation_history(project, key("Ann", "Bob")) == [found]


async def test_what_is_missing_stays_missing_and_zero_is_not_missing(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    bare, zero = await connected(
        graph,
        project,
        related("Ann", "Bob"),
        related("Bob", "Ann", strength=0.0, confidence=0.0, metadata={}),
    )
    assert (bare.strength, bare.confidence, bare.metadata) == (None, None, None)
    assert (zero.strength, zero.confidence, zero.metadata) == (0.0, 0.0, {})
    assert await relation(graph, project, bare.key) == bare
    assert await relation(graph, project, zero.key) == zero


async def test_a_new_observation_on_a_hub_rewrites_no_relation(graph: Graph, project: str) -> None:
    leaves = [NewEntity(name=f"leaf {number}", entity_type="leaf") for number in range(10)]
    await created(graph, project, new("hub"), *leaves)
    made = await connected(graph, project, *(related("hub", leaf.name) for leaf in leaves))
    await connected(graph, project, related("leaf 0", "hub"))

    before = await graph.relations_of(project, ["hub"])
    await changed(graph, project, "hub", "is new")
    await changed(graph, project, "leaf 0", "is new, too")

    assert len(before) == 11
    assert await graph.relations_of(project, ["hub"]) == before
    assert [await graph.relation_history(project, one.key) for one in made] == [[one] for one in made]


async def test_a_relation_stated_again_is_merged(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    [first] = await connected(
        graph, project, related("Ann", "Bob", strength=0.5, metadata={"old": 1}, changed_by="me")
    )
    [answer] = await graph.create_relations(
        project, [related("Ann", "Bob", confidence=0.9, metadata={"new": 2}, changed_by="you")]
    )

    second = answer.relation
    assert second is not None
    assert (answer.created, answer.changed, answer.problem) == (False, True, None)
    assert (second.strength, second.confidence, second.metadata) == (0.5, 0.9, {"new": 2})
    assert (second.uid, second.version, second.changed_by) == (first.uid, 2, "you")
    assert second.created_at == first.created_at
    assert second.valid_from > first.valid_from
    assert await graph.relations_of(project, ["Ann"]) == [second]
    earlier, later = await graph.relation_history(project, first.key)
    assert (earlier.strength, earlier.valid_to, later) == (0.5, second.valid_from, second)


async def test_what_is_given_replaces_what_was_also_if_it_is_nothing(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    full = related("Ann", "Bob", strength=0.5, confidence=0.5, metadata=METADATA)
    for write in (graph.create_relations, None):
        await connected(graph, project, full)
        empty = related("Ann", "Bob", strength=0.0, confidence=0.0, metadata={})
        if write:
            await write(project, [empty])
        else:
            await graph.update_relation(project, empty)
        found = await relation(graph, project, key("Ann", "Bob"))
        assert (found.strength, found.confidence, found.metadata) == (0.0, 0.0, {})


async def test_its_age_begins_again_even_if_nothing_else_is_new(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    [first] = await connected(graph, project, related("Ann", "Bob", strength=0.5))
    while await graph.now() <= first.updated_at:
        pass
    [second] = await connected(graph, project, related("Ann", "Bob", strength=0.5))
    [third] = await connected(graph, project, related("Ann", "Bob"))

    assert first.updated_at < second.updated_at <= third.updated_at
    assert await graph.relations_of(project, ["Ann"]) == [third]
    assert (third.strength, third.uid, third.created_at) == (0.5, first.uid, first.created_at)
    await coherent(graph, project)


async def test_the_same_relation_twice_in_one_call_is_one(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    answers = await graph.create_relations(
        project,
        [
            related("Ann", "Bob", strength=0.1, confidence=0.3),
            related("Ann", "Bob", "likes"),
            related("Ann", "Bob", strength=0.2),
        ],
    )
    assert [answer.created for answer in answers] == [True, True, False]
    found = await graph.relations_of(project, ["Ann"])
    assert [(one.relation_type, one.strength, one.confidence) for one in found] == [
        ("knows", 0.2, 0.3),
        ("likes", None, None),
    ]
    await coherent(graph, project)


async def test_another_type_or_direction_is_another_relation(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    made = await connected(
        graph, project, related("Ann", "Bob"), related("Bob", "Ann"), related("Ann", "Bob", "Knows")
    )
    assert len({one.uid for one in made}) == 3
    assert {one.uid for one in await graph.relations_of(project, ["Bob"])} == {one.uid for one in made}


async def test_a_self_relation_is_one_and_appears_once(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    await connected(graph, project, related("Ann", "Ann", "knows"), related("Ann", "Bob"))
    for number in range(3):
        await changed(graph, project, "Ann", f"is another version {number}")
    found = await graph.relations_of(project, ["Ann"])
    assert [(one.from_, one.to) for one in found] == [("Ann", "Ann"), ("Ann", "Bob")]
    assert found == await graph.relations_of(project, ["Ann", "Bob", "Ann"])
    assert (await graph.size(project)).relations == 2
    assert await graph.delete_entities(project, ["Ann"]) == [True]
    assert len(await graph.relation_history(project, key("Ann", "Ann"))) == 1
    await coherent(graph, project)


async def test_an_unknown_end_is_that_relations_problem(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob", "gone")
    await graph.delete_entities(project, ["gone"])
    answers = await graph.create_relations(
        project,
        [related("Ann", "Nobody"), related("None", "Bob"), related("Ann", "Bob"), related("Ann", "gone")],
    )

    assert [answer.created for answer in answers] == [False, False, True, False]
    assert [answer.relation is None for answer in answers] == [True, True, False, True]
    for name, answer in zip(("Nobody", "None", "", "gone"), answers, strict=True):
        assert name in (answer.problem or "")
        assert bool(answer.problem) == bool(name)
    assert len(await graph.relations_of(project, ["Ann", "Bob", "Nobody", "None", "gone"])) == 1


async def test_an_update_is_a_new_version_of_what_it_states(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    [first] = await connected(graph, project, related("Ann", "Bob", strength=0.5, metadata=METADATA))
    second = await graph.update_relation(project, related("Ann", "Bob", confidence=0.0, changed_by="you"))

    assert (second.strength, second.confidence, second.metadata) == (0.5, 0.0, METADATA)
    assert (second.uid, second.version, second.changed_by) == (first.uid, 2, "you")
    assert second.valid_from > first.valid_from
    assert await graph.relations_of(project, ["Ann"]) == [second]
    assert [one.version for one in await graph.relation_history(project, first.key)] == [1, 2]


async def test_what_is_not_there_is_not_updated(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    for end in ("Bob", "Nobody"):
        with pytest.raises(NotFound, match=end):
            await graph.update_relation(project, related("Ann", end, strength=0.5))
    await connected(graph, project, related("Ann", "Bob"))
    await graph.delete_relations(project, [key("Ann", "Bob")])
    with pytest.raises(NotFound):
        await graph.update_relation(project, related("Ann", "Bob", strength=0.5))
    assert await graph.relations_of(project, ["Ann"]) == []


async def test_deleting_relations_answers_what_was_there(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    [old, _] = await connected(
        graph, project, related("Ann", "Bob", strength=0.5), related("Ann", "Bob", "likes")
    )
    deleted = await graph.delete_relations(
        project, [key("Bob", "Ann"), key("Ann", "Bob"), key("Ann", "Nobody")]
    )
    assert deleted == [False, True, False]
    assert [one.relation_type for one in await graph.relations_of(project, ["Ann"])] == ["likes"]
    [archived] = await graph.relation_history(project, old.key)
    assert archived.valid_to is not None
    assert archived.valid_to > archived.valid_from
    assert await graph.delete_relations(project, [old.key]) == [False]

    [answer] = await graph.create_relations(project, [related("Ann", "Bob", confidence=0.1)])
    assert answer.created
    assert answer.relation is not None
    assert (answer.relation.strength, answer.relation.confidence) == (None, 0.1)
    assert len(await graph.relation_history(project, old.key)) == 2
    await coherent(graph, project)


async def test_relations_of_either_end_are_in_order_and_limited(graph: Graph, project: str) -> None:
    await created(graph, project, "a", "b", "c", "Z")
    await connected(
        graph,
        project,
        *[related("b", "a", "x"), related("a", "c", "y"), related("Z", "a", "x"), related("a", "c", "x")],
        *[related("a", "Z", "x"), related("b", "c", "x")],
    )
    ordered = [("Z", "a", "x"), ("a", "Z", "x"), ("a", "c", "x"), ("a", "c", "y"), ("b", "a", "x")]

    found = await graph.relations_of(project, ["a"])
    assert [(one.from_, one.to, one.relation_type) for one in found] == ordered
    assert await graph.relations_of(project, ["a"], limit=3) == found[:3]
    assert len(await graph.relations_of(project, ["a", "b", "nobody"])) == 6
    assert await graph.relations_of(project, ["nobody"]) == []
    strange = ["A b", "é", "\uffed", "\U0001f600"]
    await created(graph, project, *strange)
    await connected(graph, project, *(related("a", name, "z") for name in reversed(strange)))
    for at in (None, FOREVER):
        found = await graph.relations_of(project, strange, at=at)
        assert [one.to for one in found] == strange, "by code points"
