"""Races of real processes on one graph, and writers that are killed."""

import asyncio
import fcntl
import itertools
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.processes import Child
from unstuck_memory.graph import Graph

from support_memory.conformance.given import coherent, connected, created, key, new, one, related, relation
from support_memory.places import Place

PATIENCE = 300.0


class Writers:
    """Processes that wait at a gate until all are there, and then write at once."""

    def __init__(self, place: Place, project: str, folder: Path) -> None:
        self.place, self.project, self.folder = place, project, folder
        self.children: list[Child] = []
        self._numbers = itertools.count()

    @contextmanager
    def at_once(self, count: int, work: str, turns: int) -> Iterator[list[Child]]:
        """As many that do so many turns of some work; they have begun when the block begins, and are dead after it."""
        gate = self.folder / "gate"
        with ExitStack() as stack, gate.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            children = [self._child(gate, work, turns) for _ in range(count)]
            for child in children:
                stack.enter_context(child)
            for child in children:
                child.until_line("^ready$", PATIENCE)
            fcntl.flock(lock, fcntl.LOCK_UN)
            yield children

    def _child(self, gate: Path, work: str, turns: int) -> Child:
        number = next(self._numbers)
        program = [sys.executable, "-m", "support_memory.programs.writer", str(self.place), self.project]
        argv = [*program, str(gate), work, str(number), str(turns)]
        return Child(
            argv, self.folder / f"writer-{number}.log", env={"PYTHONPATH": ":".join(filter(None, sys.path))}
        )


def _ended(children: list[Child]) -> None:
    for child in children:
        assert child.wait(PATIENCE) == 0, child.log.read_text()


def _done(child: Child) -> set[str]:
    """What a writer has been answered."""
    return set(re.findall(r"^done (\S+)\n", child.log.read_text(), re.MULTILINE))


@pytest.fixture
def writers(place: Place, project: str, tmp_path: Path) -> Writers:
    return Writers(place, project, tmp_path)


async def test_many_processes_that_create_one_name_make_one_entity(
    graph: Graph, project: str, place: Place, writers: Writers
) -> None:
    await _one_name(graph, project, writers, place.crowd)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_sixteen_processes_that_create_one_name_make_one_entity(
    graph: Graph, project: str, writers: Writers
) -> None:
    await _one_name(graph, project, writers, 16)


async def _one_name(graph: Graph, project: str, writers: Writers, count: int) -> None:
    with writers.at_once(count, "create", 3) as children:
        await asyncio.to_thread(_ended, children)

    hub = await one(graph, project, "hub")
    seen = {f"seen by {number}-{turn}" for number in range(count) for turn in range(3)}
    assert set(hub.observations) == {*seen, "seen by all"}
    assert len(hub.observations) == len(seen) + 1
    assert hub.version == len(seen)
    history = await graph.entity_history(project, "hub")
    assert {version.uid for version in history} == {hub.uid}
    assert [version.version for version in history] == list(range(1, hub.version + 1))
    await coherent(graph, project)


async def test_many_processes_that_state_one_relation_make_one(
    graph: Graph, project: str, place: Place, writers: Writers
) -> None:
    await created(graph, project, "Ann", "Bob")
    with writers.at_once(min(place.crowd, 8), "relate", 5) as children:
        await asyncio.to_thread(_ended, children)

    found = await relation(graph, project, key("Ann", "Bob"))
    assert await graph.relations_of(project, ["Ann"]) == [found]
    history = await graph.relation_history(project, found.key)
    assert [version.version for version in history] == list(range(1, len(history) + 1))
    assert len(history) == 5 * min(place.crowd, 8), "each of them brought something"
    await coherent(graph, project)


async def _nothing_lost(graph: Graph, project: str, done: set[str], *, killed: bool = False) -> None:
    """All that writers were answered is there; more only if some were killed before they could print it."""
    await coherent(graph, project)
    names = {entity.name for entity in await graph.list_entities(project, 1_000_000)}
    finished = {f"done by {name}" for name in done}
    hub = set((await one(graph, project, "hub")).observations)
    related_to_hub = {r.from_ for r in await graph.relations_of(project, ["hub"], limit=1_000_000)}
    assert names >= done | {"hub"}
    assert hub >= finished
    assert related_to_hub >= done | {"hub"}
    asked = sorted(done)
    for start in range(0, len(asked), 500):
        for entity in await graph.get_entities(project, asked[start : start + 500]):
            assert entity.observations == ("done",)
    if not killed:
        assert names == related_to_hub == done | {"hub"}
        assert hub == finished


async def test_six_processes_write_one_graph_and_nothing_is_lost(
    graph: Graph, project: str, writers: Writers
) -> None:
    with writers.at_once(6, "everything", 5) as children:
        await asyncio.to_thread(_ended, children)
    await _nothing_lost(graph, project, set().union(*map(_done, children)))
    assert (await graph.size(project)).entities == 31


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_six_processes_write_one_graph_for_a_minute(
    graph: Graph, project: str, writers: Writers
) -> None:
    begun = time.monotonic()
    rounds = 0
    done: set[str] = set()
    while time.monotonic() - begun < 60:
        with writers.at_once(6, "everything", 40) as children:
            await asyncio.to_thread(_ended, children)
        done |= set().union(*map(_done, children))
        rounds += 1
    assert len(done) == 6 * 40 * rounds
    await _nothing_lost(graph, project, done)


async def test_a_writer_that_is_killed_leaves_a_graph_that_is_whole(
    graph: Graph, project: str, writers: Writers, another: Callable[[], Awaitable[Graph]]
) -> None:
    """Others write on beside it; whatever it was answered is there."""
    done: set[str] = set()
    for kill in range(3):
        with writers.at_once(2, "everything", 1000) as (victim, other):
            await victim.until_line_async(r"^done \d+-2$", PATIENCE)
            await asyncio.sleep(0.013 * kill)  # anywhere in its work
            victim.kill()
            after = len(_done(other)) + 2
            await other.until_line_async(rf"^done \d+-{after}$", PATIENCE)
            other.kill()
            done |= _done(victim) | _done(other)
    await _nothing_lost(await another(), project, done, killed=True)
    await created(graph, project, new("hub", "lives on"))
    await connected(graph, project, related("hub", "hub", "goes on"))


async def test_many_may_migrate_at_once(
    graph: Graph, project: str, another: Callable[[], Awaitable[Graph]]
) -> None:
    [ann] = await created(graph, project, "Ann")
    graphs = [await another() for _ in range(4)]
    await asyncio.gather(*(one.migrate() for one in graphs * 2))
    assert await graphs[-1].get_entities(project, ["Ann"]) == [ann]


async def test_tasks_that_state_one_relation_make_one(graph: Graph, project: str) -> None:
    await created(graph, project, "Ann", "Bob")
    answers = await asyncio.gather(
        *(
            graph.create_relations(
                project,
                [related("Ann", "Bob", metadata={str(n): 1}), related("Bob", "Ann", metadata={str(n): 1})][
                    :: 1 - 2 * (n % 2)
                ],
            )
            for n in range(12)
        )
    )
    assert sum(answer.created for both in answers for answer in both) == 2
    assert len(await graph.relations_of(project, ["Ann"])) == 2
    await coherent(graph, project)


async def test_a_cancelled_call_is_done_whole_or_not_at_all(graph: Graph, project: str) -> None:
    for turn in range(6):
        asked = [new(f"thing {turn}-{number}", "x") for number in range(60)]
        call = asyncio.create_task(graph.create_entities(project, asked))
        await asyncio.sleep(0.004 * turn)
        call.cancel()
        await asyncio.wait([call])
        created_now = [answer.created for answer in await graph.create_entities(project, asked)]
        assert len(set(created_now)) == 1, "a part of it was written"
    assert (await graph.size(project)).entities == 360
    await coherent(graph, project)


async def test_merges_in_both_directions_at_once_leave_one(graph: Graph, project: str) -> None:
    """Each moves what is there when it is its turn; who comes second finds one of the two gone."""
    await created(graph, project, new("Ann", "a"), new("Bob", "b"), "Cid")
    await connected(graph, project, related("Ann", "Cid"), related("Cid", "Bob"))
    done = await asyncio.gather(
        graph.merge_entities(project, "Ann", "Bob"),
        graph.merge_entities(project, "Bob", "Ann"),
        return_exceptions=True,
    )
    assert sorted(isinstance(answer, LookupError) for answer in done) == [False, True], done
    [left] = await graph.get_entities(project, ["Ann", "Bob"])
    assert sorted(left.observations) == ["a", "b"]
    assert len(await graph.relations_of(project, ["Cid"])) == 2
    await coherent(graph, project)
