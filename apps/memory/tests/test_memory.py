"""Memory writes what it was given, sees that it is embedded, and reads it back page by page."""

import asyncio
import logging
import math
from typing import Any

import pytest
from support_memory.conformance.given import exported, key, more, new, related
from support_memory.jobs import Recorded
from unstuck_memory.decay import DAY
from unstuck_memory.errors import GraphUnavailable, InvalidInput, NotFound
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.memory import RELATIONS, Memory
from unstuck_memory.values import EntityChange

from unstuck import StoreUnavailable

pytestmark = pytest.mark.anyio


async def test_each_new_version_gets_one_job_and_nothing_else_does(memory: Memory, jobs: Recorded) -> None:
    await memory.create_entities([new("Ann", "tall"), new(" Bob "), new("Ann", "kind")])
    assert sorted(jobs.taken()) == [("Ann", 1), ("Bob", 1)]

    await memory.create_entities([new("Ann", "tall"), new("Bob")])
    await memory.add_observations([more("Ann", "kind"), more("Eve", "x")])
    await memory.delete_observations([more("Ann", "never said")])
    await memory.create_relations([related("Ann", "Bob")])
    assert jobs.calls == []

    await memory.create_entities([new("Ann", "old"), new("Cid")])
    await memory.add_observations([more("Bob", "loud", replaces=[]), more("Bob", "late")])
    await memory.delete_observations([more("Ann", "old")])
    assert jobs.calls == [[("Ann", 2), ("Cid", 1)], [("Bob", 2)], [("Ann", 3)]]


async def test_the_answer_shows_what_became_of_each_item_in_order(memory: Memory) -> None:
    written = await memory.create_entities([new("Ann", "tall"), new("ann"), new("Ann", "tall", "kind")])
    first, similar, again = written.changes

    assert (first.created, again.created, again.added) == (True, False, ("kind",))
    assert similar.similar == "Ann"
    assert written.entities[0] == written.entities[2] == await memory.get_entity("Ann")
    assert written.scheduled

    added = await memory.add_observations([more("Eve", "x"), more("ann", "small", replaces=[])])
    assert added.changes[0].problem is not None
    assert added.changes[1].added == ("small",)


async def test_nothing_is_asked_of_graph_or_queue_for_nothing(memory: Memory, jobs: Recorded) -> None:
    assert (await memory.create_entities([])).changes == ()
    assert (await memory.add_observations([])).changes == ()
    assert (await memory.delete_observations([])).changes == ()
    assert await memory.delete_entities([]) == {}
    assert await memory.create_relations([]) == []
    assert await memory.delete_relations([]) == []
    assert (await memory.open_nodes([])).entities == ()
    assert jobs.calls == []


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("jobs.db is locked"), GraphUnavailable("the graph went away"),
        ConnectionRefusedError("refused"), TimeoutError(),
    ],
)  # fmt: skip
async def test_a_write_stands_when_the_queue_cannot_be_reached(
    memory: Memory, jobs: Recorded, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.error = error
    with caplog.at_level(logging.WARNING):
        written = await memory.create_entities([new("Ann"), new("Bob")])

    assert not written.scheduled
    assert [change.created for change in written.changes] == [True, True]
    assert len((await memory.read_graph()).entities) == 2
    [record] = caplog.records
    line = record.getMessage()
    assert line.startswith(
        "2 new versions of entities have no embedding job yet, a worker of the memory schedules "
    )
    assert str(error) in line


async def test_a_write_does_not_wait_for_a_queue_that_does_not_answer(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, jobs: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    async def forever(entities: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(jobs, "schedule", forever)
    monkeypatch.setattr("unstuck_memory.memory.PATIENCE", 0.1)
    assert not (await memory.create_entities([new("Ann")])).scheduled
    assert "no answer within 0.1 seconds" in caplog.text


async def test_an_entity_does_not_get_more_observations_than_are_allowed(memory: Memory) -> None:
    await memory.create_entities([new("Ann", *map(str, range(999)))])
    await memory.add_observations([more("Ann", "5", "last")])
    full = await memory.get_entity("Ann")

    for write in (
        memory.create_entities([new("Bob"), new("Ann", "one more")]),
        memory.add_observations([more("Ann", "one more")]),
        memory.create_entities([new("Cid", *map(str, range(600))), new("Cid", *map(str, range(500, 1001)))]),
    ):
        with pytest.raises(
            InvalidInput, match=r"would have 1,001 observations: at most 1,000 are allowed; delete"
        ):
            await write
    assert await memory.get_entity("Ann") == full
    assert len((await memory.read_graph()).entities) == 1

    swapped = await memory.add_observations([more("Ann", "one more", replaces=["last"])])
    assert (swapped.changes[0].added, swapped.changes[0].deleted) == (("one more",), ("last",))
    await memory.create_entities([new("Bob", "x")])
    with pytest.raises(InvalidInput, match=r"^entity 'Ann' would have 1,001 observations"):
        await memory.merge_entities("Bob", "Ann")


async def test_an_entity_that_got_too_many_at_once_can_still_be_corrected(
    memory: Memory, file_graph: SqliteGraph
) -> None:
    words = tuple(map(str, range(1001)))
    await file_graph.create_entities("default", [new("Ann", *words)])  # as two processes could

    assert not (await memory.create_entities([new("Ann", "5")])).changes[0].changed
    assert (await memory.add_observations([more("Ann", "six", replaces=["6"])])).changes[0].changed
    with pytest.raises(InvalidInput, match=r"would have 1,002 observations"):
        await memory.add_observations([more("Ann", "one more")])
    assert (await memory.delete_observations([more("Ann", *words[:2])])).changes[0].deleted == ("0", "1")
    assert (await memory.add_observations([more("Ann", "one more")])).changes[0].changed


async def test_opened_nodes_come_with_relations_that_have_one_of_them_at_either_end(memory: Memory) -> None:
    await memory.create_entities([new("Ann"), new("Bob"), new("Cid")])
    await memory.create_relations([related("Ann", "Bob"), related("Cid", "Ann"), related("Cid", "Bob")])

    graph = await memory.open_nodes([" Ann", "Ann", "Eve"])
    assert [entity.name for entity in graph.entities] == ["Ann"]
    assert {(one.from_, one.to) for one in graph.relations} == {("Ann", "Bob"), ("Cid", "Ann")}
    assert (graph.next_after, graph.more_relations) == (None, False)


async def test_the_graph_is_read_page_by_page(memory: Memory) -> None:
    names = [f"n{number:02}" for number in range(7)]
    await memory.create_entities([new(name) for name in names])
    await memory.create_relations([related("n00", "n05")])

    pages, after = [], None
    while True:
        page = await memory.read_graph(limit=3, after=after)
        pages.append(page)
        if (after := page.next_after) is None:
            break
    assert [[entity.name for entity in page.entities] for page in pages] == [names[:3], names[3:6], names[6:]]
    assert [len(page.relations) for page in pages] == [1, 1, 0]
    assert (await memory.read_graph(limit=7)).next_after is None


async def test_an_answer_holds_a_thousand_relations_and_reports_that_there_are_more(memory: Memory) -> None:
    leaves = [f"leaf {number}" for number in range(RELATIONS + 1)]
    await memory.create_entities([new("hub"), *map(new, leaves[:500])])
    await memory.create_entities([*map(new, leaves[500:])])
    await memory.create_relations([related("hub", leaf) for leaf in leaves[:-1]])
    graph = await memory.open_nodes(["hub"])
    assert (len(graph.relations), graph.more_relations) == (RELATIONS, False)

    await memory.create_relations([related(leaves[-1], "hub")])
    graph = await memory.open_nodes(["hub"])
    assert (len(graph.relations), graph.more_relations) == (RELATIONS, True)


async def test_history_and_the_graph_at_a_time_show_what_was(memory: Memory, jobs: Recorded) -> None:
    [ann, _] = (await memory.create_entities([new("Ann", "tall"), new("Bob")])).entities
    [made] = await memory.create_relations([related("Ann", "Bob", strength=0.5)])
    assert made.relation is not None
    await asyncio.sleep(0.01)  # the graph counts in milliseconds
    await memory.add_observations([more("Ann", "kind")])
    await memory.update_relation(related("Ann", "Bob", confidence=0.25))
    now = await memory.get_relation("Ann", "Bob", "knows")
    assert now is not None
    await asyncio.sleep(0.01)
    assert await memory.delete_entities(["Ann", "Eve"]) == {"Ann": True, "Eve": False}

    assert await memory.get_entity("Ann") is None
    assert await memory.get_relation("Ann", "Bob", "knows") is None
    history = await memory.get_entity_history("Ann")
    assert [version.observations for version in history] == [("tall",), ("tall", "kind")]
    relations = await memory.get_relation_history("Ann", "Bob", "knows")
    assert [(one.strength, one.confidence) for one in relations] == [(0.5, None), (0.5, 0.25)]

    then = await memory.get_graph_at_time(now.valid_from)
    assert [entity.observations for entity in then.entities] == [("tall", "kind"), ()]
    assert [one.confidence for one in then.relations] == [0.25]
    first = await memory.get_graph_at_time(made.relation.valid_from, limit=1)
    assert ([entity.version for entity in first.entities], first.next_after) == ([1], "Ann")
    assert (await memory.get_graph_at_time(ann.valid_from - 1)).entities == ()


async def test_the_decayed_graph_honours_time_and_factor(memory: Memory) -> None:
    await memory.create_entities([new("Ann"), new("Bob")])
    changes = await memory.create_relations([
        related("Ann", "Bob", confidence=0.8), related("Ann", "Ann", strength=0.5),
    ])  # fmt: skip
    at = max(change.relation.updated_at for change in changes if change.relation)

    async def left(**asked: Any) -> list[float | None]:
        graph = (await memory.get_decayed_graph(**asked)).graph
        return [one.confidence for one in sorted(graph.relations, key=lambda one: one.to)]

    assert await left(reference_time=at + 30 * DAY) == [None, pytest.approx(0.4)]
    assert await left(reference_time=at + DAY, decay_factor=2 * math.log(0.5) / DAY) == [
        None,
        pytest.approx(0.2),
    ]
    assert await left(reference_time=at + 3000 * DAY) == [None, 0.1]
    assert await left() == [None, pytest.approx(0.8)]
    info = (await memory.get_decayed_graph(limit=1)).decay_info
    assert abs(info.reference_time - at) < DAY
    assert await left(reference_time=at + 30 * DAY) == [None, pytest.approx(0.4)], "reading changes nothing"


async def test_a_merge_moves_what_the_source_has_and_schedules_the_other(
    memory: Memory, jobs: Recorded
) -> None:
    await memory.create_entities([new("Ann", "tall"), new("Anne", "tall", "kind"), new("Bob")])
    await memory.create_relations([related("Anne", "Bob")])
    jobs.taken()

    tried = await memory.merge_entities("Anne", "Ann", dry_run=True)
    assert (tried.merge.observations, tried.merge.relations) == (1, 1)
    assert await memory.get_entity("Anne") is not None
    assert jobs.calls == []

    done = await memory.merge_entities(" Anne", "Ann")
    assert (done.merge.observations, done.merge.relations, done.scheduled) == (1, 1, True)
    assert jobs.calls == [[("Ann", 2)]]
    assert await memory.get_entity("Anne") is None
    assert await memory.get_relation("Ann", "Bob", "knows") is not None
    with pytest.raises(NotFound):
        await memory.merge_entities("Anne", "Ann")
    with pytest.raises(
        InvalidInput, match=r"^into is 'Ann', as source is: it must be another entity; give two names$"
    ):
        await memory.merge_entities("Ann", " Ann ")


async def test_only_what_was_archived_is_purged(memory: Memory) -> None:
    await memory.create_entities([new("Ann", "tall"), new("Bob")])
    await memory.add_observations([more("Ann", "kind")])
    await memory.delete_entities(["Bob"])

    assert (await memory.purge(DAY)).entities == 0
    size = await memory.size()
    assert (size.entities, size.archived) == (1, 2)
    await asyncio.sleep(0.01)  # the graph counts in milliseconds
    assert (await memory.purge(0)).entities == 2
    assert [one.version for one in await memory.get_entity_history("Ann")] == [2]


async def test_a_missing_relation_is_not_updated(memory: Memory) -> None:
    await memory.create_entities([new("Ann")])
    with pytest.raises(NotFound):
        await memory.update_relation(related("Ann", "Ann"))
    [unknown, made] = await memory.create_relations([related("Ann", "Eve"), related("Ann", "Ann")])
    assert unknown.problem is not None
    assert "Eve" in unknown.problem
    assert made.created
    assert await memory.delete_relations([key("Ann", "Eve"), key("Ann", "Ann")]) == [False, True]


async def test_projects_share_a_graph_and_nothing_else(memory: Memory, file_graph: SqliteGraph) -> None:
    other = Memory(file_graph, " other ", Recorded())
    await memory.create_entities([new("Ann", "tall")])
    before = await exported(file_graph, "default")
    await other.create_entities([new("Ann", "small")])

    assert other.project == "other"
    assert await exported(file_graph, "default") == before
    found = await other.get_entity("Ann")
    assert found is not None
    assert found.observations == ("small",)


def problems(changes: tuple[EntityChange, ...]) -> list[str | None]:
    return [change.problem for change in changes]


async def test_a_correction_of_what_is_not_there_writes_nothing(memory: Memory, jobs: Recorded) -> None:
    await memory.create_entities([new("Ann", "tall")])
    jobs.taken()
    written = await memory.add_observations([more("Ann", "small", replaces=["never said"])])
    assert problems(written.changes) != [None]
    assert jobs.calls == []
