"""A graph in Neo4j, its jobs in a Neo4j database of their own, and what one server with one database is good for."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.neo4j import GRAPH, PASSWORD, QUEUE, Neo4j
from support_memory.command import run, shown
from support_memory.conformance.given import more, new
from support_memory.embedding_server import EmbeddingServer, Refusal, Vectors
from support_memory.jobs import Recorded
from support_memory.queued import MANY, Patient
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.embeddings.providers.openai import OpenAIProvider
from unstuck_memory.embeddings.queue import embed_store
from unstuck_memory.graphs.neo4j import Neo4jGraph
from unstuck_memory.memory import Memory

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
CONSTRAINTS = "SHOW CONSTRAINTS YIELD labelsOrTypes RETURN collect(DISTINCT labelsOrTypes[0])"


@pytest.fixture
def jobs_at(queue_server: Neo4j) -> dict[str, str]:
    """The variables that name its database."""
    queue_server.execute("MATCH (n) DETACH DELETE n")
    return {
        "EMBED_JOB_DATABASE_URI": queue_server.uri,
        "EMBED_JOB_DATABASE_USERNAME": "neo4j",
        "EMBED_JOB_DATABASE_PASSWORD": PASSWORD,
    }


@pytest.fixture
async def graph(graph_at: Neo4j) -> AsyncIterator[Neo4jGraph]:
    async with Neo4jGraph(graph_at.uri, "neo4j", "", GRAPH) as graph:
        await graph.migrate()
        yield graph


@pytest.mark.accepts("EMB-150")
def test_init_makes_the_graphs_schema_and_the_constraints_of_jobs(
    graph_at: Neo4j, queue_server: Neo4j, jobs_at: dict[str, str], tmp_path: Path
) -> None:
    for server in (graph_at, queue_server):
        for (name,) in server.execute("SHOW CONSTRAINTS YIELD name"):
            server.execute(f"DROP CONSTRAINT {name}")
    init = ["init", "--uri", graph_at.uri, "--username", "neo4j", "--password", PASSWORD]
    made = run(tmp_path, *init, **jobs_at)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == (
        f"the graph is ready: {graph_at.uri}/{GRAPH}\nthe job store is ready: {queue_server.uri}/{QUEUE}\n"
    )
    [(of_graph,)] = graph_at.execute(CONSTRAINTS)
    [(of_jobs,)] = queue_server.execute(CONSTRAINTS)
    assert "Entity" in of_graph
    assert not [label for label in of_graph if label.startswith("EmbedJob")]
    assert "EmbedJob" in of_jobs
    unique = "SHOW CONSTRAINTS YIELD labelsOrTypes, properties WHERE labelsOrTypes = ['EmbedJob'] RETURN properties"
    assert (["entity_uid", "model", "version"],) in queue_server.execute(unique)

    wrong = run(tmp_path, *init, **jobs_at | {"EMBED_JOB_DATABASE_PASSWORD": "another-password"})
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "another-password" not in wrong.stdout + wrong.stderr


async def test_jobs_are_nodes_of_the_queues_own_database_until_every_entity_has_its_vectors(
    graph: Neo4jGraph,
    graph_at: Neo4j,
    queue_server: Neo4j,
    jobs_at: dict[str, str],
    hosted: OpenAIProvider,
    server: EmbeddingServer,
) -> None:
    url = embed_store(jobs_at)
    assert url is not None
    async with Patient(graph, hosted, url, MANY) as jobs:
        assert not any(
            (await jobs.get_queue_status()).values()
        )  # its schema is there: a write would not wait for that
        memory = Memory(graph, "default", jobs)
        written = await memory.create_entities([new("Ann", "tall"), new("Bob"), new("bad")])
        assert written.scheduled
        await memory.add_observations([more("Ann", "late")])
        of = "MATCH (j:EmbedJob) RETURN j.entity_uid, j.model, j.version, j.status"
        uids = {entity.name: entity.uid for entity in written.entities}
        assert sorted(queue_server.execute(of)) == sorted(
            (uids[name], "m", version, "pending")
            for name, version in (("Ann", "1"), ("Ann", "2"), ("Bob", "1"), ("bad", "1"))
        )
        assert graph_at.execute("MATCH (j:EmbedJob) RETURN count(j)") == [(0,)]

        server.always(lambda request: Refusal(400) if "bad" in str(request.texts) else Vectors())
        assert await jobs.process_jobs(10) == 4
        assert await jobs.get_queue_status() == {"pending": 0, "processing": 0, "completed": 3, "failed": 1}
        coverage = await memory.coverage()
        assert (coverage.entities, coverage.embedded) == (3, 2)

        queue_server.execute("MATCH (j:EmbedJob) DETACH DELETE j")
        await Memory(graph, "default", Recorded()).create_entities([new("Cyd")])
        server.always(Vectors())
        await jobs._repair.once()
        assert await jobs.process_jobs(10) == 2
        assert (await memory.coverage()).embedded == 4
        again = await jobs.schedule_entity_embedding("default", "Ann")
        assert again.created  # its completed job was wiped
        assert not (await jobs.schedule_entity_embedding("default", "Ann")).created
        await jobs.process_jobs(10)
        assert (await jobs.schedule_entity_embedding("default", "Ann", again=True)).id == again.id


async def test_one_server_with_one_database_is_enough(
    graph_at: Neo4j, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its jobs are in a file, unless they are to be in that database, too."""
    graph = {"NEO4J_URI": graph_at.uri, "NEO4J_PASSWORD": PASSWORD}
    same = {
        "EMBED_JOB_DATABASE_URI": graph_at.uri,
        "EMBED_JOB_DATABASE_NAME": GRAPH,
        "EMBED_JOB_DATABASE_PASSWORD": PASSWORD,
    }
    try:
        for jobs_at in ({}, same):
            environ = graph | jobs_at
            made = run(tmp_path, "init", **environ)
            assert (made.returncode, made.stderr) == (0, "")
            url = embed_store(jobs_at) or f"sqlite:///{tmp_path}/unstuck-memory/jobs.db"
            async with (
                Neo4jGraph(graph_at.uri, "neo4j", PASSWORD, GRAPH) as opened,
                EmbeddingJobs(opened, MockProvider(), url) as jobs,
            ):
                await Memory(opened, "default", jobs).create_entities([new(f"thing {len(jobs_at)}")])
                status, code = shown(tmp_path, **environ)
                assert (status["missing"], status["queue"]["pending"], code) == (True, 1, 1)
                assert await jobs.process_jobs(10) == 1
            status, code = shown(tmp_path, **environ)
            assert (status["missing"], status["queue"]["completed"], code) == (False, 1, 0)
            assert PASSWORD not in str(status)
    finally:
        graph_at.execute("MATCH (n) WHERE any(l IN labels(n) WHERE l STARTS WITH 'EmbedJob') DETACH DELETE n")
        for (name,) in graph_at.execute(
            "SHOW CONSTRAINTS YIELD name, labelsOrTypes WHERE labelsOrTypes[0] STARTS WITH 'EmbedJob' RETURN name"
        ):
            graph_at.execute(f"DROP CONSTRAINT {name}")
