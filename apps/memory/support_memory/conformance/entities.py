"""Entities: created, merged by name, changed, archived."""

import asyncio

import pytest
from unstuck_memory.graph import Graph

from support_memory.conformance.given import (
    FOREVER,
    changed,
    coherent,
    connected,
    created,
    key,
    more,
    names,
    new,
    one,
    related,
)


async def test_a_new_entity_is_the_first_version_of_its_name(graph: Graph, project: str) -> None:
    before = await graph.now()
    [answer] = await graph.create_entities(project, [new("Ann", "sings", "cooks", kind="person", by="me")])

    entity = answer.entity
    assert entity is not None
    assert (answer.created, answer.changed, answer.problem, answer.similar) == (True, True, None, None)
    assert answer.added == ("sings", "cooks")
    assert (entity.name, entity.entity_type, entity.observations) == ("Ann", "person", ("sings", "cooks"))
    assert (entity.version, entity.valid_to, entity.changed_by) == (1, None, "me")
    assert before <= entity.created_at == entity.valid_from <= await graph.now()
    assert await graph.get_entities(project, ["Ann"]) == [entity]
    assert await graph.get_by_uid([entity.uid]) == [entity]


@pytest.mark.accepts("EMB-053")
async def test_many_are_created_in_one_call_and_answered_in_order(graph: Graph, project: str) -> None:
    asked = [f"thing {number % 7}-{number}" for number in range(60)]
    answers = await graph.create_entities(project, [new(name, f"is {name}") for name in asked])

    entities = [answer.entity for answer in answers if answer.entity]
    assert names(entities) == asked
    assert all(entity.observations == (f"is {entity.name}",) for entity in entities)
    assert len({entity.uid for entity in entities}) == 60


async def test_nothing_asked_is_nothing_done(graph: Graph, project: str) -> None:
    assert await graph.create_entities(project, []) == []
    assert await graph.add_observations(project, []) == []
    assert await graph.delete_observations(project, []) == []
    assert await graph.delete_entities(project, []) == []
    assert await graph.create_relations(project, []) == []
    assert await graph.delete_relations(project, []) == []
    assert await graph.get_entities(project, []) == []
    assert await graph.get_by_uid([]) == []
    assert await graph.relations_of(project, []) == []
    assert await graph.current([]) == []
    assert await graph.store_embeddings([]) == []
    assert await graph.restore(project, []) == 0


async def test_creating_a_known_name_adds_what_is_new_and_keeps_the_type(graph: Graph, project: str) -> None:
    [first] = await created(graph, project, new("Ann", "sings", kind="person"))
    [answer] = await graph.create_entities(project, [new("Ann", "sings", "cooks", kind="robot", by="you")])

    entity = answer.entity
    assert entity is not None
    assert (answer.created, answer.changed, answer.added) == (False, True, ("cooks",))
    assert (entity.uid, entity.version, entity.entity_type) == (first.uid, 2, "person")
    assert (entity.observations, entity.changed_by) == (("sings", "cooks"), "you")
    assert entity.created_at == first.created_at
    assert entity.valid_from > first.valid_from
    assert await graph.get_entities(project, ["Ann"]) == [entity]


async def test_the_same_name_twice_in_one_call_is_one_entity(graph: Graph, project: str) -> None:
    answers = await graph.create_entities(
        project, [new("Ann", "sings"), new("Bob"), new("Ann", "cooks", "sings"), new("Ann", "swims")]
    )

    assert [answer.created for answer in answers] == [True, True, False, False]
    assert answers[2].added == ("cooks",)
    entity = await one(graph, project, "Ann")
    assert entity.observations == ("sings", "cooks", "swims")
    assert {answer.entity.uid for answer in answers if answer.entity} == {
        entity.uid,
        (await one(graph, project, "Bob")).uid,
    }
    assert all(answer.entity == entity for answer in answers if answer.entity and answer.entity.name == "Ann")
    await coherent(graph, project)


async def test_an_observation_stands_once(graph: Graph, project: str) -> None:
    [entity] = await created(graph, project, new("Ann", "sings", "sings", "cooks", "sings"))
    assert entity.observations == ("sings", "cooks")
    assert (await changed(graph, project, "Ann", "swims", "swims", "cooks")).observations == (
        "sings",
        "cooks",
        "swims",
    )


async def test_without_a_change_there_is_no_new_version(graph: Graph, project: str) -> None:
    [first] = await created(graph, project, new("Ann", "sings"))

    [again] = await graph.create_entities(project, [new("Ann", "sings", by="somebody else")])
    [added] = await graph.add_observations(project, [more("Ann", "sings")])
    [nothing] = await graph.add_observations(project, [more("Ann")])
    [deleted] = await graph.delete_observations(project, [more("Ann", "flies")])

    for answer in (again, added, nothing, deleted):
        assert (answer.entity, answer.changed, answer.created) == (first, False, False)
        assert (answer.added, answer.deleted, answer.problem) == ((), (), None)
    assert await graph.entity_history(project, "Ann") == [first]


async def test_a_name_is_compared_exactly_and_a_similar_one_is_named(graph: Graph, project: str) -> None:
    await created(graph, project, "New York", "École")

    answers = await graph.create_entities(
        project, [new("new york"), new("New  York"), new("NewYork"), new("école"), new("York"), new("Ecole")]
    )
    assert [answer.created for answer in answers] == [True] * 6
    assert answers[0].similar == "New York"
    assert all((answer.similar or "").casefold().replace(" ", "") == "newyork" for answer in answers[1:3])
    assert answers[3].similar == "École"
    assert [answer.similar for answer in answers[4:]] == [None, None]
    [exact] = await graph.create_entities(project, [new("New York", "is big")])
    assert (exact.created, exact.similar) == (False, None)


async def test_an_archived_name_is_similar_to_none(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann")
    await graph.delete_entities(project, ["Ann"])
    [answer] = await graph.create_entities(project, [new("ann")])
    assert answer.similar is None


async def test_observations_are_added_in_order_and_only_what_is_missing(graph: Graph, project: str) -> None:
    [first] = await created(graph, project, new("Ann", "sings"))
    [answer] = await graph.add_observations(project, [more("Ann", "cooks", "sings", "swims")])

    assert answer.entity is not None
    assert (answer.added, answer.deleted, answer.changed, answer.created) == (
        ("cooks", "swims"),
        (),
        True,
        False,
    )
    assert answer.entity.observations == ("sings", "cooks", "swims")
    assert (answer.entity.uid, answer.entity.version) == (first.uid, 2)


async def test_a_correction_replaces_in_one_version(graph: Graph, project: str) -> None:
    await created(graph, project, new("Ann", "is 30", "sings"))
    [answer] = await graph.add_observations(project, [more("Ann", "is 31", replaces=["is 30"])])

    assert answer.entity is not None
    assert (answer.added, answer.deleted) == (("is 31",), ("is 30",))
    assert sorted(answer.entity.observations) == ["is 31", "sings"]
    assert answer.entity.version == 2


async def test_what_is_replaced_by_something_known_is_gone_all_the_same(graph: Graph, project: str) -> None:
    await created(graph, project, new("Ann", "is 30", "is 31"))
    [answer] = await graph.add_observations(project, [more("Ann", "is 31", replaces=["is 30"])])
    assert (answer.added, answer.deleted, answer.changed) == ((), ("is 30",), True)
    assert (await one(graph, project, "Ann")).observations == ("is 31",)


async def test_a_problem_of_one_item_holds_up_no_other(graph: Graph, project: str) -> None:
    [ann, bob] = await created(graph, project, new("Ann", "sings"), new("Bob", "cooks"))
    unknown, wrong, right = await graph.add_observations(
        project, [more("Nobody", "x"), more("Ann", "swims", replaces=["flies"]), more("Bob", "swims")]
    )

    assert unknown.problem is not None
    assert "Nobody" in unknown.problem
    assert wrong.problem is not None
    assert "flies" in wrong.problem
    assert (unknown.entity, unknown.changed, wrong.changed, wrong.added) == (None, False, False, ())
    assert await one(graph, project, "Ann") == ann, "nothing of an item with a problem is written"
    assert right.entity is not None
    assert (right.problem, right.entity.version) == (None, bob.version + 1)
    [deleted, other] = await graph.delete_observations(project, [more("Nobody", "x"), more("Bob", "cooks")])
    assert (deleted.entity, deleted.changed) == (None, False)
    assert "Nobody" in (deleted.problem or "")
    assert other.deleted == ("cooks",)


async def test_two_items_may_change_the_same_entity(graph: Graph, project: str) -> None:
    await created(graph, project, new("Ann", "a"))
    answers = await graph.add_observations(
        project, [more("Ann", "b"), more("Ann", "b", "c"), more("Ann", "d", replaces=["a"])]
    )
    assert [answer.added for answer in answers] == [("b",), ("c",), ("d",)]
    entity = await one(graph, project, "Ann")
    assert sorted(entity.observations) == ["b", "c", "d"]
    assert all(answer.entity == entity for answer in answers)
    await graph.delete_observations(project, [more("Ann", "b"), more("Ann", "c")])
    assert (await one(graph, project, "Ann")).observations == ("d",)
    await coherent(graph, project)


async def test_observations_are_deleted_in_one_version(graph: Graph, project: str) -> None:
    await created(graph, project, new("Ann", "sings", "cooks", "swims"))
    [answer] = await graph.delete_observations(project, [more("Ann", "swims", "sings", "flies")])

    assert answer.entity is not None
    assert (sorted(answer.deleted), answer.added, answer.changed) == (["sings", "swims"], (), True)
    assert (answer.entity.observations, answer.entity.version) == (("cooks",), 2)
    await graph.delete_observations(project, [more("Ann", "cooks")])
    assert (await one(graph, project, "Ann")).observations == ()


async def test_deleting_answers_what_was_there_and_archives_it(graph: Graph, project: str) -> None:
    [ann, _] = await created(graph, project, "Ann", "Bob")
    await connected(graph, project, related("Ann", "Bob"), related("Bob", "Ann"))

    assert await graph.delete_entities(project, ["Nobody", "Ann"]) == [False, True]

    assert await graph.get_entities(project, ["Ann", "Bob"]) == [await one(graph, project, "Bob")]
    assert await graph.get_by_uid([ann.uid]) == []
    assert await graph.relations_of(project, ["Ann", "Bob"]) == []
    assert await graph.get_relation(project, key("Ann", "Bob")) is None
    [archived] = await graph.entity_history(project, "Ann")
    assert archived.valid_to is not None
    assert (archived.uid, archived.version) == (ann.uid, ann.version)
    [relation] = await graph.relation_history(project, key("Ann", "Bob"))
    assert relation.valid_to is not None
    assert await graph.delete_entities(project, ["Ann"]) == [False]
    [answer] = await graph.add_observations(project, [more("Ann", "x")])
    assert answer.problem is not None
    await coherent(graph, project)


async def test_a_name_that_was_archived_may_be_given_again(graph: Graph, project: str) -> None:
    [old, _] = await created(graph, project, new("Ann", "sings", kind="person"), new("Bob"))
    await connected(graph, project, related("Ann", "Bob", strength=0.5))
    await graph.delete_entities(project, ["Ann"])
    [answer] = await graph.create_entities(project, [new("Ann", "cooks", kind="robot")])

    entity = answer.entity
    assert entity is not None
    assert answer.created
    assert entity.uid != old.uid
    assert (entity.version, entity.entity_type, entity.observations) == (1, "robot", ("cooks",))
    assert await graph.relations_of(project, ["Ann"]) == []
    assert [one.uid for one in await graph.entity_history(project, "Ann")] == [old.uid, entity.uid]
    await coherent(graph, project)


async def test_texts_come_back_as_they_are(graph: Graph, project: str) -> None:
    texts = (
        "'; DROP TABLE x; --",
        "日本語 \U0001f600",
        "a\nb\tc\\",
        '{"json": [1]}',
        "x" * 10_000,
        "ﬃ é e\u0301",
        "$p",
    )
    [entity] = await created(graph, project, new("it's $name `x` \U0001f600", *texts, kind="Typ «ä»"))
    read = await one(graph, project, "it's $name `x` \U0001f600")
    assert (read.observations, read.entity_type) == (texts, "Typ «ä»")
    assert read == entity


async def test_those_asked_for_are_read_in_order(graph: Graph, project: str) -> None:
    entities = await created(graph, project, "b", "a", "c")
    assert names(await graph.get_entities(project, ["c", "a", "none", "b", "a"])) == ["a", "b", "c"]
    asked = [entities[2].uid, "unknown", entities[0].uid]
    assert names(await graph.get_by_uid(asked)) == ["c", "b"]


async def test_a_list_is_in_order_of_code_points_and_has_pages(graph: Graph, project: str) -> None:
    ordered = ["10", "9", "A b", "Ab", "Z", "a", "ab", "é", "日", "\uffed", "\U0001f600"]
    assert ordered == sorted(ordered)
    await created(graph, project, *reversed(ordered))

    pages: list[str] = []
    after = None
    for size in (3, 3, 3, 2):
        page = await graph.list_entities(project, 3, after=after)
        assert len(page) == size
        pages += names(page)
        after = page[-1].name
    assert await graph.list_entities(project, 3, after=after) == []
    assert pages == ordered
    assert names(await graph.list_entities(project, 2, after="B")) == ["Z", "a"]
    assert names(await graph.list_entities(project, 100)) == ordered
    assert names(await graph.list_entities(project, 100, at=FOREVER)) == ordered
    assert names(await graph.get_entities(project, ordered[::-1])) == ordered


async def test_calls_at_the_same_time_on_one_graph_lose_nothing(graph: Graph, project: str) -> None:
    """Each names the same entities in another order."""
    shared = [f"shared {number}" for number in range(25)]

    async def create(number: int) -> None:
        mine = shared[number:] + shared[:number]
        await graph.create_entities(
            project, [new(name, f"seen by {number}") for name in mine[:: 1 - 2 * (number % 2)]]
        )
        await graph.create_entities(project, [new(f"own {number}-{i}") for i in range(25)])

    await asyncio.gather(*map(create, range(20)))

    everything = {f"seen by {number}" for number in range(20)}
    for entity in await graph.get_entities(project, shared):
        assert set(entity.observations) == everything
        assert entity.version == 20
    assert (await graph.size(project)).entities == 25 + 20 * 25
    await coherent(graph, project)


async def test_size_counts_what_is_current_and_what_is_archived(graph: Graph, project: str) -> None:
    size = await graph.size(project)
    assert (size.entities, size.relations, size.archived) == (0, 0, 0)
    await created(graph, project, new("Ann", "a"), "Bob", "Cid")
    await connected(graph, project, related("Ann", "Bob"), related("Bob", "Cid"))
    await changed(graph, project, "Ann", "b")
    size = await graph.size(project)
    assert (size.entities, size.relations, size.archived) == (3, 2, 1)
    await graph.delete_entities(project, ["Ann"])
    size = await graph.size(project)
    assert (size.entities, size.relations, size.archived) == (2, 1, 3)
