"""The file of a SQLite graph: who may read it, and what happens if it cannot be used."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
from unstuck_memory.archive_records import EntityRecord
from unstuck_memory.errors import GraphDamaged, GraphUnavailable
from unstuck_memory.graphs.sqlite import SqliteGraph, connection
from unstuck_memory.graphs.sqlite.connection import MIGRATIONS
from unstuck_memory.graphs.statements import statements
from unstuck_memory.values import NewEntity, NewRelation

pytestmark = pytest.mark.anyio
ANN = NewEntity(name="Ann", entity_type="person", observations=("sings",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "graph.db"


@pytest.fixture
async def graph(path: Path) -> AsyncIterator[SqliteGraph]:
    async with SqliteGraph(path) as graph:
        await graph.migrate()
        yield graph


async def _used(path: Path) -> None:
    async with SqliteGraph(path) as graph:
        await graph.migrate()
        await graph.create_entities("p", [ANN])


async def _refused(path: Path) -> str:
    """Why a graph cannot be opened, in one line."""
    with pytest.raises((GraphDamaged, GraphUnavailable)) as refused:
        await _used(path)
    message = str(refused.value)
    assert repr(str(path)) in message
    assert "\n" not in message
    return f"{type(refused.value).__name__}: {message}"


async def test_only_its_owner_may_read_the_file_and_its_log(path: Path) -> None:
    before = os.umask(0)
    try:
        async with SqliteGraph(path) as graph:
            await graph.migrate()
            await graph.create_entities("p", [ANN])
            await graph.list_entities("p", 10)
            files = sorted(path.parent.iterdir())
            assert [file.name for file in files] == ["graph.db", "graph.db-shm", "graph.db-wal"]
            assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    finally:
        os.umask(before)


async def test_a_commit_is_on_the_disk_when_it_is_answered(graph: SqliteGraph) -> None:
    threads = graph._opened()
    modes = await threads.write(
        lambda tx: (tx.connection.pragma("journal_mode"), tx.connection.pragma("synchronous"))
    )
    assert modes == ("wal", 2)


async def test_a_path_is_relative_to_where_the_graph_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = SqliteGraph("graph.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    async with graph:
        await graph.migrate()
    assert (tmp_path / "graph.db").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


async def test_a_file_that_is_locked_for_too_long_is_unavailable_and_then_works(
    graph: SqliteGraph, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.2)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(GraphUnavailable, match=r"locked by another process for 0\.2 s"):
        await graph.create_entities("p", [ANN])
    assert await graph.list_entities("p", 10) == [], "reading waits for nobody"
    other.execute("COMMIT")
    other.close()
    [answer] = await graph.create_entities("p", [ANN])
    assert answer.created


async def test_a_damaged_file_is_named_as_such(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    assert "GraphDamaged" in await _refused(path)
    assert path.read_bytes().startswith(b"no database"), "it is left as it is"


async def test_a_damaged_page_is_named_as_such(path: Path) -> None:
    async with SqliteGraph(path) as graph:
        await graph.migrate()
        many = [NewEntity(name=f"{n:04} {'x' * 100}", entity_type="t") for n in range(900)]
        await graph.create_entities("p", many)
    other = apsw.Connection(str(path))
    pages = [page for (page,) in other.execute("SELECT pageno FROM dbstat WHERE name = 'entity'")]
    other.close()
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 100)
    async with SqliteGraph(path) as graph:
        with pytest.raises(GraphDamaged, match="archive or a backup"):
            await graph.list_entities("p", 1000)


async def test_a_schema_of_a_newer_release_is_refused(path: Path) -> None:
    async with SqliteGraph(path) as graph:
        await graph.migrate()
    known = len(statements(*MIGRATIONS))
    with apsw.Connection(str(path)) as other:
        other.pragma("user_version", known + 1)
    other.close()
    message = await _refused(path)
    assert "GraphDamaged" in message
    assert "upgrade unstuck-memory" in message


async def test_a_graph_that_gets_a_newer_schema_while_it_is_open_raises_an_error_about_it(
    graph: SqliteGraph, path: Path
) -> None:
    other = apsw.Connection(str(path))
    other.pragma("user_version", 1000)
    other.close()
    with pytest.raises(GraphDamaged, match="1000"):
        await graph.migrate()


async def test_another_programs_file_is_refused_and_left_as_it_is(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE theirs (x)")
    assert "belongs to another program" in await _refused(path)
    assert other.pragma("journal_mode") == "delete"
    other.close()


async def test_a_file_without_tables_needs_init(path: Path) -> None:
    async with SqliteGraph(path) as graph:
        with pytest.raises(GraphDamaged, match="unstuck-memory init"):
            await graph.list_entities("p", 10)


async def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    assert "create it" in await _refused(tmp_path / "missing" / "graph.db")
    assert "directory" in await _refused(tmp_path)


@pytest.mark.parametrize("replaced", [False, True])
async def test_nothing_is_written_to_a_file_that_is_gone(
    graph: SqliteGraph, path: Path, replaced: bool
) -> None:
    await graph.list_entities("p", 10)
    path.rename(path.with_name("moved.db"))
    if replaced:
        path.touch()
    with pytest.raises(GraphUnavailable, match="deleted or replaced"):
        await graph.create_entities("p", [ANN])
    with pytest.raises(GraphUnavailable, match="deleted or replaced"):
        await graph.list_entities("p", 10)


async def test_a_graph_is_used_while_it_is_open(path: Path) -> None:
    graph = SqliteGraph(path)
    with pytest.raises(GraphUnavailable, match="async with"):
        await graph.now()
    async with graph:
        await graph.migrate()
    with pytest.raises(GraphUnavailable, match="async with"):
        await graph.create_entities("p", [ANN])


async def test_an_export_sees_one_moment_and_may_be_left(graph: SqliteGraph) -> None:
    many = [NewEntity(name=f"{number:04}", entity_type="t") for number in range(1200)]
    await graph.create_entities("p", many)
    relation = NewRelation(from_="0000", to="0001", relation_type="r")
    await graph.create_relations("p", [relation])
    records = graph.export("p")
    first = await anext(records)
    await graph.delete_entities("p", [entity.name for entity in many])
    everything = [first] + [record async for record in records]
    of_then = [
        record.entity.valid_to if isinstance(record, EntityRecord) else record.valid_to
        for record in everything
    ]
    assert of_then == [None] * 1201

    left = graph.export("p")
    await anext(left)
    await left.aclose()  # type: ignore[attr-defined]
    with pytest.raises(StopAsyncIteration):
        await anext(left)
