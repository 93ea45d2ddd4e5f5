"""Versions and times: each change is later than the one before, and a graph can be read as it was."""

import time
from itertools import pairwise

from unstuck_memory.graph import Graph

from support_memory.conformance.given import (
    HOUR,
    changed,
    coherent,
    connected,
    created,
    exported,
    key,
    more,
    names,
    new,
    older,
    related,
    relation,
)


async def test_the_clock_is_in_milliseconds(graph: Graph) -> None:
    assert abs(await graph.now() - time.time() * 1000) < 60_000


async def test_versions_grow_without_gaps_however_fast_they_come(graph: Graph, project: str) -> None:
    [entity] = await created(graph, project, new("Ann", "0"))
    for number in range(1, 30):
        await changed(graph, project, "Ann", str(number))
    await graph.delete_observations(project, [more("Ann", "0"), more("Ann", "1")])

    history = await graph.entity_history(project, "Ann")
    assert {one.uid for one in history} == {entity.uid}
    assert [one.version for one in history] == list(range(1, len(history) + 1))
    assert len(history) >= 31
    assert history[11].observations == tuple(str(number) for number in range(12))
    for earlier, later in pairwise(history):
        assert earlier.valid_from < later.valid_from
        assert earlier.valid_to == later.valid_from
    assert history[-1].valid_to is None
    assert [one.created_at for one in history] == [entity.created_at] * len(history)
    await coherent(graph, project)


async def test_a_name_lives_and_dies_many_times_without_overlap(graph: Graph, project: str) -> None:
    for life in range(8):
        await created(graph, project, new("Ann", str(life)), "Bob")
        await connected(graph, project, related("Ann", "Bob"))
        assert await graph.delete_entities(project, ["Ann"]) == [True]

    history = await graph.entity_history(project, "Ann")
    assert [one.observations for one in history] == [(str(life),) for life in range(8)]
    assert len({one.uid for one in history}) == 8
    assert all(one.valid_to is not None and one.valid_to > one.valid_from for one in history)
    assert len(await graph.relation_history(project, key("Ann", "Bob"))) == 8
    await coherent(graph, project)


async def test_a_change_comes_after_what_a_faster_clock_wrote(
    graph: Graph, elsewhere: Graph, project: str
) -> None:
    """An archive may come from a machine whose clock is ahead of ours."""
    await created(elsewhere, project, "Ann", "Bob", "Cid")
    await connected(elsewhere, project, related("Ann", "Bob"), related("Ann", "Cid"), related("Bob", "Cid"))
    ahead = [older(record, -HOUR) for record in await exported(elsewhere, project)]
    await graph.restore(project, ahead)

    await changed(graph, project, "Ann", "a")
    await connected(graph, project, related("Ann", "Bob", strength=0.5))
    await graph.update_relation(project, related("Ann", "Cid", strength=0.5))
    assert await graph.delete_relations(project, [key("Bob", "Cid")]) == [True]
    await connected(graph, project, related("Bob", "Cid"))
    await coherent(graph, project)
    await graph.merge_entities(project, "Cid", "Bob")
    assert await graph.delete_entities(project, ["Ann", "Bob"]) == [True, True]
    await created(graph, project, "Ann", "Cid")
    await coherent(graph, project)
    assert len(await graph.entity_history(project, "Ann")) == 3


async def test_entities_are_read_as_they_were_at_a_time(graph: Graph, project: str) -> None:
    await created(graph, project, new("Ann", "a"))
    await created(graph, project, new("Bob"))
    await changed(graph, project, "Ann", "b")
    await graph.delete_entities(project, ["Ann"])
    await created(graph, project, new("Ann", "other"))
    first, second, third = await graph.entity_history(project, "Ann")
    [bob] = await graph.entity_history(project, "Bob")
    assert second.valid_to is not None

    async def ann_at(at: int) -> list[tuple[str, ...]]:
        found = await graph.list_entities(project, 10, at=at)
        return [one.observations for one in found if one.name == "Ann"]

    assert await graph.list_entities(project, 10, at=first.valid_from - 1) == []
    assert await ann_at(first.valid_from) == [("a",)]
    assert await ann_at(second.valid_from - 1) == [("a",)]
    assert await ann_at(second.valid_from) == [("a", "b")]
    assert await ann_at(second.valid_to - 1) == [("a", "b")]
    assert await ann_at(second.valid_to) == ([] if second.valid_to < third.valid_from else [("other",)])
    assert await ann_at(third.valid_from) == [("other",)]
    assert names(await graph.list_entities(project, 10, at=third.valid_from + 60_000)) == ["Ann", "Bob"]
    assert names(await graph.list_entities(project, 10, at=bob.valid_from, after="Ann")) == ["Bob"]
    assert names(await graph.list_entities(project, 1, at=bob.valid_from)) == ["Ann"]


async def test_an_earlier_version_has_the_time_when_it_ended(graph: Graph, project: str) -> None:
    """It is the version itself, as the history has it."""
    await created(graph, project, new("Ann", "a"))
    await changed(graph, project, "Ann", "b")
    first, second = await graph.entity_history(project, "Ann")
    assert await graph.list_entities(project, 10, at=first.valid_from) == [first]
    assert await graph.list_entities(project, 10, at=second.valid_from) == [second]


async def test_relations_are_read_as_they_were_at_a_time(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    await connected(graph, project, related("Ann", "Bob", strength=0.1))
    await connected(graph, project, related("Ann", "Bob", strength=0.2))
    await changed(graph, project, "Ann", "changes no relation")
    await graph.delete_entities(project, ["Bob"])
    first, second = await graph.relation_history(project, key("Ann", "Bob"))
    assert second.valid_to is not None

    async def strengths(at: int) -> list[float | None]:
        found = await graph.relations_of(project, ["Ann"], at=at)
        assert found == await graph.relations_of(project, ["Ann", "Bob"], at=at)
        return [one.strength for one in found]

    assert await strengths(first.valid_from - 1) == []
    assert await strengths(first.valid_from) == [0.1]
    assert await strengths(second.valid_from - 1) == [0.1]
    assert await strengths(second.valid_from) == [0.2]
    assert await strengths(second.valid_to - 1) == [0.2]
    assert await strengths(second.valid_to) == []
    assert await graph.relations_of(project, ["Bob"]) == []


async def test_relations_of_a_name_are_those_of_who_had_it_then(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob", "Cid")
    await connected(graph, project, related("Ann", "Bob"))
    then = (await relation(graph, project, key("Ann", "Bob"))).valid_from
    await graph.delete_entities(project, ["Ann"])
    await created(graph, project, "Ann")
    await connected(graph, project, related("Ann", "Cid"))

    assert [one.to for one in await graph.relations_of(project, ["Ann"], at=then)] == ["Bob"]
    assert [one.to for one in await graph.relations_of(project, ["Ann"])] == ["Cid"]


async def test_what_never_was_has_no_history(graph: Graph, project: str) -> None:
    assert await graph.entity_history(project, "Ann") == []
    assert await graph.relation_history(project, key("Ann", "Bob")) == []
    assert await graph.list_entities(project, 10) == []
    assert await graph.list_entities(project, 10, at=1) == []
    assert await graph.get_relation(project, key("Ann", "Bob")) is None
