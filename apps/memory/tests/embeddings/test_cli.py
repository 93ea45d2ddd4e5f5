"""The ``unstuck-memory`` command as people run it: init, status, and wrong input in one line."""

import json
from pathlib import Path

import pytest
from support.waiting import until_async
from support.work import at_work
from support_memory.command import run, shown
from support_memory.conformance.given import new
from support_memory.embedding_server import EmbeddingServer, Refusal, Vectors
from unstuck_memory import settings
from unstuck_memory.embeddings.jobs import EmbeddingJobs
from unstuck_memory.embeddings.providers import open_provider
from unstuck_memory.embeddings.providers.mock import MockProvider
from unstuck_memory.graphs.sqlite import SqliteGraph
from unstuck_memory.memory import Memory

pytestmark = pytest.mark.anyio
PASSWORD = "a-password-nobody-may-see"


async def test_init_makes_a_graph_and_a_job_store_for_their_owner_alone(tmp_path: Path) -> None:
    for _ in range(2):
        made = run(tmp_path, "init")
        assert (made.returncode, made.stderr) == (0, "")
    folder = tmp_path / "unstuck-memory"
    assert made.stdout == (
        f"the graph is ready: {folder}/graph.db\nthe job store is ready: sqlite:///{folder}/jobs.db\n"
    )
    assert json.loads(run(tmp_path, "init", "--json").stdout) == {
        "graph": f"{folder}/graph.db",
        "jobs": f"sqlite:///{folder}/jobs.db",
    }
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.name for file in folder.iterdir()} >= {"graph.db", "jobs.db"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in folder.iterdir())
    found, code = shown(tmp_path)
    assert code == 0
    assert (found["coverage"], found["missing"]) == ({"entities": 0, "embedded": 0}, False)
    assert (found["provider"], found["model"], found["health"]) == ("mock", "mock", "HEALTHY")


async def test_status_shows_coverage_queue_and_dead_letters_and_fails_if_nobody_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: EmbeddingServer
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    run(tmp_path, "init")
    found = settings.load()
    assert isinstance(found.graph_at, Path)
    async with (
        SqliteGraph(found.graph_at) as graph,
        EmbeddingJobs(graph, MockProvider(), found.jobs_at) as jobs,
    ):
        await Memory(graph, "default", jobs).create_entities([new("Ann"), new("Bob"), new("Cyd")])
        await jobs.process_jobs(2)
        status, code = shown(tmp_path)
        assert (status["coverage"], status["missing"], status["workers"], code) == (
            {"entities": 3, "embedded": 2},
            True,
            0,
            1,
        )
        assert status["queue"] == {"pending": 1, "processing": 0, "completed": 2, "failed": 0}
        text = run(tmp_path, "status")
        assert text.returncode == 1
        assert "default: 2 of 3 entities have embeddings (67%)" in text.stdout
        assert (
            "no worker runs: start unstuck-memory mcp, or unstuck worker unstuck_memory.worker:app"
            in text.stdout
        )

        hosted = {
            "UNSTUCK_MEMORY_EMBEDDINGS": "openai",
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": PASSWORD,
        }
        other, code = shown(tmp_path, **hosted)
        assert (other["provider"], other["coverage"], code) == ("openai", {"entities": 3, "embedded": 0}, 1)
        server.always(Refusal(401, message=f"wrong key {PASSWORD}"))
        refused = run(tmp_path, "status", **hosted)
        assert (refused.returncode, PASSWORD in refused.stderr) == (1, False)
        assert refused.stderr.startswith(
            "unstuck-memory: provider openai does not answer: AuthenticationError"
        )
        assert refused.stderr.count("\n") == 1

        await (await jobs.app.jobs()).pause("embedding")
        async with at_work(jobs.app):
            await until_async(lambda: _somebody(jobs), 30, "a worker")
            status, code = shown(tmp_path)
        assert (status["missing"], status["workers"], code) == (True, 1, 0)
        await (await jobs.app.jobs()).resume("embedding")
        await jobs.process_jobs(2)
        status, code = shown(tmp_path)
        assert (status["missing"], status["workers"], status["deadLetters"], code) == (False, 0, 0, 0)


async def test_status_counts_dead_letters_and_names_what_brings_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: EmbeddingServer
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    run(tmp_path, "init")
    found = settings.load()
    hosted = {"UNSTUCK_MEMORY_EMBEDDINGS": "openai", "OPENAI_BASE_URL": server.url}
    server.always(lambda request: Refusal(400) if "bad" in str(request.texts) else Vectors())
    provider = open_provider(environ=hosted)
    async with found.graph() as graph, EmbeddingJobs(graph, provider, found.jobs_at) as jobs:
        await Memory(graph, "default", jobs).create_entities([new("Ann"), new("bad")])
        await jobs.process_jobs(10)
        assert not await jobs.process_jobs(10)
    await provider.aclose()

    status, code = shown(tmp_path, **hosted)
    assert (status["deadLetters"], status["queue"]["failed"], status["missing"], code) == (1, 1, True, 1)
    text = run(tmp_path, "status", **hosted).stdout
    assert "1 completed, 1 failed; 1 dead letter\n" in text
    assert "unstuck dead --queue embedding lists them, unstuck retry puts them back" in text


async def _somebody(jobs: EmbeddingJobs) -> bool:
    return bool(await (await jobs.app.jobs()).workers())


def test_status_of_nothing_makes_nothing(tmp_path: Path) -> None:
    answer = run(tmp_path, "status")
    assert answer.returncode == 2
    assert answer.stderr.endswith("make one with unstuck-memory init\n")
    assert not (tmp_path / "unstuck-memory").exists()


@pytest.mark.parametrize(
    ("args", "environ", "told"),
    [
        (["init", "--uri", "graph.example", "--password", PASSWORD], {}, "--uri is not the address"),
        (["init", "--username", "ann"], {}, "belong to --uri"),
        (["init", "--uri", "bolt://h", "--username", "ann"], {}, "without its password"),
        (
            ["init"],
            {"NEO4J_URI": "graph.example", "NEO4J_PASSWORD": PASSWORD},
            "NEO4J_URI is not the address",
        ),
        (["init"], {"NEO4J_URI": f"bolt://ann:{PASSWORD}@h"}, "NEO4J_URI has a user in it"),
        (["init"], {"EMBED_JOB_DATABASE_URI": f"http://ann:{PASSWORD}@h"}, "EMBED_JOB_DATABASE_URI is not"),
        (["init"], {"UNSTUCK_MEMORY_JOBS": f"mysql://ann:{PASSWORD}@h/db"}, "mysql"),
        (["init"], {"XDG_DATA_HOME": "here"}, "XDG_DATA_HOME is 'here': it must be an absolute path"),
        (["status"], {"UNSTUCK_MEMORY_EMBEDDINGS": "gpt"}, "UNSTUCK_MEMORY_EMBEDDINGS is 'gpt'"),
        (["status", "--project", "unknown"], {}, "project 'unknown' is unknown"),
        (["status", "--jsn"], {}, "No such option"),
        (["inti"], {}, "No such command"),
    ],
)
def test_wrong_input_is_reported_in_one_line_without_a_password(
    tmp_path: Path, args: list[str], environ: dict[str, str], told: str
) -> None:
    if args[0] == "status":
        run(tmp_path, "init")
    answer = run(tmp_path, *args, **environ)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("unstuck-memory: ")
    assert told in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert PASSWORD not in answer.stderr


def test_a_server_that_is_not_there_is_reported_in_one_line(tmp_path: Path) -> None:
    answer = run(tmp_path, "init", "--uri", "bolt://127.0.0.1:1", NEO4J_PASSWORD=PASSWORD)
    assert answer.returncode == 1
    assert "127.0.0.1:1" in answer.stderr
    assert (answer.stderr.count("\n"), PASSWORD in answer.stderr) == (1, False)


def test_the_environment_sets_where_graph_and_jobs_are(tmp_path: Path) -> None:
    home = {"XDG_DATA_HOME": str(tmp_path)}
    found = settings.load(home)
    assert found.graph_at == tmp_path / "unstuck-memory" / "graph.db"
    assert found.jobs_at == f"sqlite:///{tmp_path}/unstuck-memory/jobs.db"
    assert settings.data_folder({}) == Path.home() / ".local" / "share" / "unstuck-memory"

    server = {"NEO4J_URI": "bolt://h:7687", "NEO4J_USERNAME": "ann", "NEO4J_PASSWORD": PASSWORD}
    graph = settings.load(home | server).graph_at
    assert graph == settings.Neo4jDatabase("bolt://h:7687", "ann", PASSWORD, "neo4j")
    assert PASSWORD not in f"{graph} {graph!r}"
    other = settings.load(home | server | {"NEO4J_DATABASE": "memory"})
    assert isinstance(other.graph_at, settings.Neo4jDatabase)
    assert (other.graph_at.database, other.jobs_at) == ("memory", found.jobs_at)

    queue = {"EMBED_JOB_DATABASE_URI": "bolt://h:7688"}
    assert settings.load(home | queue).jobs_at == "bolt://h:7688/embedding-jobs"
    named = {"UNSTUCK_MEMORY_JOBS": "postgresql://h/jobs"}
    assert settings.load(home | queue | named).jobs_at == "postgresql://h/jobs"
