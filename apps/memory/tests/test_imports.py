"""What was exported is imported again, equal, with all its history; files of the reference memory server are read line by line."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support_memory.conformance.given import coherent, exported, more, new
from support_memory.jobs import Recorded
from support_memory.lives import lived
from unstuck_memory.errors import InvalidInput
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.memory import Memory
from unstuck_memory.values import NewEntity

pytestmark = pytest.mark.anyio
Opened = Callable[[str], Awaitable[SqliteGraph]]


@pytest.fixture
async def another(tmp_path: Path) -> AsyncIterator[Opened]:
    """Opens one more graph, in a file of its own."""
    async with AsyncExitStack() as stack:

        async def opened(name: str) -> SqliteGraph:
            graph = await stack.enter_async_context(SqliteGraph(tmp_path / name))
            await graph.migrate()
            return graph

        yield opened


async def test_an_archive_restores_everything_in_another_graph(
    memory: Memory, another: Opened, tmp_path: Path
) -> None:
    await lived(memory)
    source = await coherent(memory._graph, "default")
    path = tmp_path / "graph.jsonl"
    assert await memory.export_file(path) == len(source) + 2

    jobs = Recorded()
    graph = await another("other.db")
    done = await Memory(graph, "copy", jobs).import_file(path)
    assert (done.records, done.bad_lines, done.scheduled) == (len(source), 0, True)
    assert await coherent(graph, "copy") == source
    assert sorted(jobs.taken()) == [("Ann", 3), ("Bob", 2), ("Cid", 1)]

    again = await Memory(graph, "copy", jobs).import_file(path)
    assert again.records == 0
    assert await exported(graph, "copy") == source
    assert jobs.calls == []

    lines = [line async for line in Memory(graph, "copy", jobs).export()]
    assert sorted(lines) == sorted(path.read_bytes().splitlines(keepends=True))


async def test_an_archive_of_several_transactions_is_restored_whole(
    memory: Memory, another: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lived(memory)
    await memory.export_file(tmp_path / "graph.jsonl")
    monkeypatch.setattr("unstuck_memory.archive.RECORDS", 2)
    graph = await another("other.db")
    await Memory(graph, "default", Recorded()).import_file(tmp_path / "graph.jsonl")
    assert await exported(graph, "default") == await exported(memory._graph, "default")


async def test_what_is_newer_in_the_graph_stays(memory: Memory, tmp_path: Path) -> None:
    await lived(memory)
    await memory.export_file(tmp_path / "graph.jsonl")
    await memory.add_observations([more("Ann", "newer")])
    before = await exported(memory._graph, "default")
    assert (await memory.import_file(tmp_path / "graph.jsonl")).records == 0
    assert await exported(memory._graph, "default") == before


async def test_a_restored_graph_goes_on_where_the_other_ended(
    memory: Memory, another: Opened, tmp_path: Path
) -> None:
    await lived(memory)
    await memory.export_file(tmp_path / "graph.jsonl")
    graph = await another("other.db")
    copy = Memory(graph, "default", Recorded())
    await copy.import_file(tmp_path / "graph.jsonl")

    written = await copy.add_observations([more("Ann", "newer")])
    before = await memory.get_entity("Ann")
    assert before is not None
    assert written.entities[0].uid == before.uid
    assert written.entities[0].version == before.version + 1
    await coherent(graph, "default")


async def refused(memory: Memory, path: Path) -> str:
    """The one line with which an import is refused; nothing may be written by it."""
    before = await exported(memory._graph, memory.project)
    with pytest.raises(InvalidInput) as error:
        await memory.import_file(path)
    assert await exported(memory._graph, memory.project) == before
    line = str(error.value)
    assert line.isprintable()
    return line


async def test_a_newer_or_damaged_archive_writes_nothing(
    memory: Memory, another: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstuck_memory.archive.RECORDS", 2)
    await lived(memory)
    path = tmp_path / "graph.jsonl"
    await memory.export_file(path)
    whole = path.read_bytes()
    jobs = Recorded()
    copy = Memory(await another("other.db"), "default", jobs)

    path.write_bytes(whole.replace(b'"version":1}', b'"version":7}', 1))
    assert await refused(copy, path) == (
        "graph.jsonl is an archive of version 7: version 1 can be read; import it with a newer release"
    )
    path.write_bytes(whole[: len(whole) // 2])
    assert "nothing was imported" in await refused(copy, path)
    path.write_bytes(whole.replace(b'"confidence":0.9', b'"confidence":1.9'))
    assert "confidence is 1.9: it must be a number from 0 to 1" in await refused(copy, path)
    *records, end = whole.splitlines(keepends=True)
    path.write_bytes(b"".join([*records[:-1], b"{}\n", end]))
    assert "nothing was imported" in await refused(copy, path)
    assert jobs.calls == []


async def test_an_archive_is_not_mixed_with_entities_of_the_same_names_or_of_another_project(
    memory: Memory, another: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstuck_memory.archive.RECORDS", 2)
    await lived(memory)
    await memory.export_file(tmp_path / "graph.jsonl")
    other = Memory(await another("other.db"), "default", Recorded())
    await other.create_entities([new("Cid")])
    line = await refused(other, tmp_path / "graph.jsonl")
    assert line.startswith("project 'default' has another entity named 'Cid': ")

    beside = Memory(memory._graph, "beside", Recorded())
    line = await refused(beside, tmp_path / "graph.jsonl")
    assert "of the archive is in another project of this graph: " in line


REFERENCE = """\
{"type":"relation","from":"Ann","to":"Bob","relationType":"knows"}
{"type":"entity","name":"Ann","entityType":"person","observations":["tall","kind","tall"]}

{"type":"entity","name":"Bob","entityType":"person","observations":[],"createdAt":"2025-01-01"}
not JSON
{"type":"entity","name":"","entityType":"person","observations":[]}
{"type":"entity","name":"Eve","entityType":"person"}
{"type":"note","name":"Eve"}
["type","entity"]
{"type":"relation","from":"Ann","to":"Eve","relationType":"knows"}
{"type":"relation","from":"Ann","relationType":"knows"}
{"type":"entity","name":"Zoe","entityType":"person","observations":["old"]}
{"type":"entity","name":"Full","entityType":"thing","observations":["one more"]}
{"type":"relation","from":"Ann","to":"Zoe","relationType":"knows"}
"""


async def test_the_reference_servers_file_is_read_but_for_its_bad_lines(
    memory: Memory, jobs: Recorded, tmp_path: Path
) -> None:
    await memory.create_entities([new("Full", *map(str, range(1000))), new("Zoe", "young")])
    jobs.taken()
    path = tmp_path / "memory.jsonl"
    path.write_text(REFERENCE)
    done = await memory.import_file(path)

    assert [(bad.line, bad.problem.split(":")[0].split(";")[0]) for bad in done.bad] == [
        (5, "the line is not JSON"),
        (6, "name is empty"),
        (7, "observations is None"),
        (8, 'the line must be an object whose "type" is "entity" or "relation"'),
        (9, 'the line must be an object whose "type" is "entity" or "relation"'),
        (10, done.bad[5].problem.split(":")[0].split(";")[0]),
        (11, "to is None"),
        (13, "entity 'Full' would have 1,001 observations"),
    ]
    assert "Eve" in done.bad[5].problem
    assert (done.records, done.bad_lines) == (3 + 2, 8)
    assert sorted(jobs.taken()) == [("Ann", 1), ("Bob", 1), ("Zoe", 2)]
    graph = await memory.open_nodes(["Ann", "Bob", "Zoe"])
    assert [entity.observations for entity in graph.entities] == [("tall", "kind"), (), ("young", "old")]
    assert {(one.from_, one.to) for one in graph.relations} == {("Ann", "Bob"), ("Ann", "Zoe")}

    assert (await memory.import_file(path)).bad_lines == 8
    found = await memory.get_entity("Zoe")
    assert found is not None
    assert found.version == 2


async def test_what_was_written_for_the_reference_server_is_what_is_current(
    memory: Memory, another: Opened, tmp_path: Path
) -> None:
    await lived(memory)
    path = tmp_path / "memory.jsonl"
    assert await memory.export_file(path, "reference") == 6
    lines = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    assert sorted(lines, key=str) == sorted([
        {"type": "entity", "name": "Ann", "entityType": "thing", "observations": ["tall", "old", "kind"]},
        {"type": "entity", "name": "Bob", "entityType": "thing", "observations": ["línea\n\u2028\x01", "loud"]},
        {"type": "entity", "name": "Cid", "entityType": "thing", "observations": ["is another one"]},
        {"type": "relation", "from": "Ann", "to": "Bob", "relationType": "knows"},
        {"type": "relation", "from": "Ann", "to": "Ann", "relationType": "knows"},
        {"type": "relation", "from": "Ann", "to": "Cid", "relationType": "is related to"},
    ], key=str)  # fmt: skip

    copy = Memory(await another("other.db"), "default", Recorded())
    assert (await copy.import_file(path)).records == 6

    async def content(of: Memory) -> tuple[list[NewEntity], set[tuple[str, str, str]]]:
        graph = await of.read_graph()
        return [new(one.name, *one.observations) for one in graph.entities], {
            (one.from_, one.to, one.relation_type) for one in graph.relations
        }

    assert await content(copy) == await content(memory)


async def test_bad_lines_are_counted_and_the_first_ones_reported(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text("bad\n" * 250 + '{"type":"relation","from":"","to":"b","relationType":"c"}\n')
    done = await memory.import_file(path)
    assert (done.records, done.bad_lines) == (0, 251)
    assert [bad.line for bad in done.bad] == list(range(1, 101))


async def test_what_the_queue_did_not_take_of_an_import_is_reported(
    memory: Memory, jobs: Recorded, another: Opened, tmp_path: Path
) -> None:
    await memory.create_entities([new("Ann")])
    for form in ("archive", "reference"):
        await memory.export_file(tmp_path / form, "archive" if form == "archive" else "reference")
        jobs.error = ConnectionRefusedError("refused")
        done = await Memory(await another(f"{form}.db"), "default", jobs).import_file(tmp_path / form)
        assert (done.records, done.scheduled) == (1, False)
        jobs.error = None
