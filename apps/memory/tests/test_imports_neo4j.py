"""An archive goes from one kind of graph to the other and back, and nothing of it is lost."""

import uuid
from pathlib import Path

import pytest
from support.neo4j import GRAPH, Neo4j
from support_memory.conformance.given import coherent, exported, more
from support_memory.jobs import Recorded
from support_memory.lives import lived
from unstuck_memory.graphs.neo4j import Neo4jGraph
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.memory import Memory

# The first test on Neo4j waits for the server's start, too.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


async def test_an_archive_is_equal_after_a_round_trip_across_both_graphs(
    memory: Memory, file_graph: SqliteGraph, graph_server: Neo4j, tmp_path: Path
) -> None:
    await lived(memory)
    source = await coherent(file_graph, "default")
    await memory.export_file(tmp_path / "there.jsonl")

    async with Neo4jGraph(graph_server.uri, "neo4j", "", GRAPH) as graph:
        await graph.migrate()
        there = Memory(graph, f"project-{uuid.uuid4().hex}", Recorded())
        assert (await there.import_file(tmp_path / "there.jsonl")).records == len(source)
        assert await coherent(graph, there.project) == source
        assert (await there.import_file(tmp_path / "there.jsonl")).records == 0

        await there.add_observations([more("Ann", "written in Neo4j")])
        changed = await exported(graph, there.project)
        await there.export_file(tmp_path / "back.jsonl")
        await there.delete_entities([entity.name for entity in (await there.read_graph()).entities])
        await there.purge(0)

    async with SqliteGraph(tmp_path / "back.db") as graph:
        await graph.migrate()
        back = Memory(graph, "default", Recorded())
        assert (await back.import_file(tmp_path / "back.jsonl")).records == len(changed) == len(source) + 1
        assert await coherent(graph, "default") == changed
        assert (await back.add_observations([more("Ann", "newer")])).changes[0].changed


async def test_memory_writes_and_reads_neo4j_as_it_does_a_file(graph_server: Neo4j) -> None:
    jobs = Recorded()
    async with Neo4jGraph(graph_server.uri, "neo4j", "", GRAPH) as graph:
        await graph.migrate()
        memory = Memory(graph, f"project-{uuid.uuid4().hex}", jobs)
        await lived(memory)
        versions = [job for job in jobs.taken() if job[0] == "Ann"]
        assert versions == [("Ann", 1), ("Ann", 2), ("Ann", 3)]

        page = await memory.read_graph(limit=2)
        assert ([entity.name for entity in page.entities], page.next_after) == (["Ann", "Bob"], "Bob")
        assert {(one.from_, one.to) for one in page.relations} == {
            ("Ann", "Ann"),
            ("Ann", "Bob"),
            ("Ann", "Cid"),
        }
        missing = await memory.get_entities_without_embeddings(2)
        assert len(missing) == 2
        coverage = await memory.coverage()
        assert (coverage.entities, coverage.embedded) == (3, 0)
        assert [one.version for one in await memory.get_entity_history("Ann")] == [1, 2, 3]
