"""An archive goes from one kind of graph to the other and back, and nothing of it is lost."""

import math
import uuid
from pathlib import Path

import pytest
from support.neo4j import GRAPH, Neo4j
from support_memory.conformance.given import coherent, exported, more, new, related
from support_memory.jobs import Recorded
from support_memory.lives import lived
from unstuck_memory.decay import DAY
from unstuck_memory.errors import InvalidInput
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


async def test_confidence_decays_in_neo4j_and_what_is_out_of_range_writes_nothing(
    graph_server: Neo4j, tmp_path: Path
) -> None:
    async with Neo4jGraph(graph_server.uri, "neo4j", "", GRAPH) as graph:
        await graph.migrate()
        memory = Memory(graph, f"project-{uuid.uuid4().hex}", Recorded())
        await memory.create_entities([new("Ann"), new("Bob")])
        stated = [related("Ann", "Bob", confidence=0.8), related("Ann", "Ann", strength=0.5)]
        changes = await memory.create_relations(stated)
        at = max(change.relation.updated_at for change in changes if change.relation)
        for age, left in ((0, 0.8), (30 * DAY, 0.4), (3000 * DAY, 0.1)):
            decayed = (await memory.get_decayed_graph(reference_time=at + age)).graph.relations
            assert [one.confidence for one in decayed] == [None, pytest.approx(left)]

        before = await exported(graph, memory.project)
        newer = tmp_path / "newer.jsonl"
        newer.write_text('{"format":"unstuck-memory","version":2}\n')
        bad_names = [
            memory.create_entities([new("good"), new(bad)]) for bad in ("", "a" * 201, "a\0b", "a\ud800")
        ]
        for call, what in (
            *((call, "entities[1].name ") for call in bad_names),
            (memory.create_entities([new("Ann", "x" * 10_001)]), "entities[0].observations[0] "),
            (memory.create_entities([new("Ann", *map(str, range(1001)))]), "entities[0].observations "),
            (memory.create_relations([related("Ann", "Bob", strength=1.1)]), "relations[0].strength "),
            (
                memory.create_relations([related("Ann", "Bob", confidence=math.nan)]),
                "relations[0].confidence ",
            ),
            (
                memory.create_relations([related("Ann", "Bob", metadata={"a": "x" * 70_000})]),
                "relations[0].metadata ",
            ),
            (memory.get_decayed_graph(decay_factor=0.1), "decayFactor "),
            (memory.import_file(newer), "newer.jsonl "),
            (Memory(graph, "typo", Recorded()).read_graph(), "project 'typo' "),
        ):
            with pytest.raises(InvalidInput) as refused:
                await call
            assert str(refused.value).startswith(what)
            assert str(refused.value).isprintable()
        assert await exported(graph, memory.project) == before
