"""The verb check: each part is tested, each failure has a next step, and no password or key is ever printed."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing

import apsw
import pytest
from support_memory.embedding_server import Body, EmbeddingServer, Refusal, Vectors
from support_memory.verbs import Command

SECRETS = ("p@ss/word-of-the-graph", "key-of-the-provider-123", "password-of-the-queue", "user%40name:s3cr3t")


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port at which nothing listens, and nothing will."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        yield found.getsockname()[1]


def lines(text: str) -> dict[str, tuple[str, str]]:
    """What is printed of each part: whether it works, and the rest."""
    rows = [row.split(maxsplit=2) for row in text.splitlines()]
    return {what: (result, rest) for what, result, rest in rows}


def test_check_of_what_works_prints_a_line_for_each_part(lived_in: Command) -> None:
    found = lines(lived_in.good("check"))
    assert found == {
        "graph": ("ok", f"{lived_in.folder}/graph.db: 2 entities and 1 relation in project default"),
        "queue": (
            "ok",
            f"sqlite:///{lived_in.folder}/jobs.db: 0 workers, DEGRADED, nobody consumes queue 'embedding', which has 2 due jobs",
        ),
        "provider": ("ok", "mock: model mock makes vectors of 64 numbers"),
    }
    assert [one["ok"] for one in lived_in.data("check")] == [True, True, True]


def test_check_of_nothing_names_the_next_step_and_makes_nothing(command: Command) -> None:
    answer = command("check")
    assert (answer.exit_code, answer.stderr) == (1, "")
    found = lines(answer.stdout)
    assert found["graph"][0] == found["queue"][0] == "FAILED"
    assert found["graph"][1].endswith("make one with unstuck-memory init")
    assert found["provider"][0] == "ok"
    assert not command.folder.exists()


@pytest.mark.accepts("T19")
def test_check_fails_for_each_part_that_does_not_answer_and_shows_no_secret(
    lived_in: Command, nobody: int
) -> None:
    graph, key, queue, _ = SECRETS
    answer = lived_in(
        "check",
        NEO4J_URI=f"bolt://127.0.0.1:{nobody}",
        NEO4J_PASSWORD=graph,
        UNSTUCK_MEMORY_EMBEDDINGS="openai",
        OPENAI_BASE_URL=f"http://127.0.0.1:{nobody}/v1",
        OPENAI_API_KEY=key,
        UNSTUCK_MEMORY_JOBS=f"postgresql://ann:{queue}@127.0.0.1:{nobody}/jobs",
    )
    assert answer.exit_code == 1
    found = lines(answer.stdout)
    assert {what: result for what, (result, _) in found.items()} == {
        "graph": "FAILED", "queue": "FAILED", "provider": "FAILED",
    }  # fmt: skip
    assert f"127.0.0.1:{nobody}" in found["graph"][1]
    assert found["queue"][1].startswith(f"postgresql://127.0.0.1:{nobody}/jobs: ")
    assert "start its server, correct its settings" in found["queue"][1]
    assert found["provider"][1].startswith("provider openai does not answer: APIConnectionError; look at")
    assert not any(secret in answer.output for secret in SECRETS)


@pytest.mark.accepts("T19")
@pytest.mark.parametrize(
    "reply",
    [Refusal(401, message=f"no key {SECRETS[1]}"), Refusal(500, message=SECRETS[1]), Body(SECRETS[1].encode()), Vectors(first=float("nan"))],
)  # fmt: skip
def test_check_fails_if_the_provider_refuses_and_does_not_repeat_what_it_wrote(
    lived_in: Command, server: EmbeddingServer, reply: Refusal | Body | Vectors
) -> None:
    server.always(reply)
    hosted = {
        "UNSTUCK_MEMORY_EMBEDDINGS": "openai",
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": SECRETS[1],
    }
    for args in (("check",), ("check", "--json")):
        answer = lived_in(*args, **hosted)
        assert answer.exit_code == 1
        assert not any(secret in answer.output for secret in SECRETS)
    *works, failed = json.loads(answer.stdout)
    assert [one["ok"] for one in works] == [True, True]
    assert (failed["what"], failed["ok"], server.requests != []) == ("provider", False, True)


@pytest.mark.parametrize(
    "environ",
    [
        {"NEO4J_URI": f"bolt://{SECRETS[3]}@h"},
        {"NEO4J_URI": "bolt://h", "NEO4J_PASSWORD": SECRETS[0], "NEO4J_DATABASE": "no such name!"},
        {"EMBED_JOB_DATABASE_URI": f"bolt://{SECRETS[3]}@h"},
        {"UNSTUCK_MEMORY_JOBS": f"mysql://ann:{SECRETS[2]}@h/db"},
        {"UNSTUCK_MEMORY_EMBEDDINGS": "openai", "OPENAI_BASE_URL": f"http://{SECRETS[3]}@h", "OPENAI_API_KEY": SECRETS[1]},
        {"EMBED_JOB_RETENTION_DAYS": "99"},
    ],
)  # fmt: skip
@pytest.mark.accepts("T19")
def test_settings_out_of_range_fail_without_their_secrets(lived_in: Command, environ: dict[str, str]) -> None:
    answer = lived_in("check", **environ)
    assert answer.exit_code in {1, 2}
    assert not any(secret in answer.output for secret in SECRETS)
    assert answer.exit_code == 1 or answer.stderr.count("\n") == 1


@pytest.mark.accepts("T19")
def test_no_error_of_any_verb_repeats_a_secret(lived_in: Command) -> None:
    graph, key, queue, _ = SECRETS
    assert "has no entity '[hidden]'" in lived_in.bad("show", key, OPENAI_API_KEY=key)
    assert "no entity '[hidden]'" in lived_in.bad("repair", graph, EMBED_JOB_DATABASE_PASSWORD=graph)
    jobs = f"postgresql://ann:{queue}%2F@127.0.0.1:1/jobs"
    assert "no entity '[hidden]'" in lived_in.bad("repair", f"{queue}/", UNSTUCK_MEMORY_JOBS=jobs)


def test_check_fails_if_no_worker_would_start(lived_in: Command) -> None:
    (lived_in.folder / "settings.toml").write_text("")
    answer = lived_in("check")
    assert answer.exit_code == 1
    assert (
        "EMBED_JOB_RETENTION_DAYS is not set: workers refuse to start; set it"
        in lines(answer.stdout)["queue"][1]
    )
    (lived_in.folder / "settings.toml").write_text("EMBED_JOB_RETENTION_DAYS = 7")
    lived_in.good("check")


def test_check_of_a_damaged_and_of_a_newer_graph_names_the_next_step(lived_in: Command) -> None:
    with closing(apsw.Connection(str(lived_in.folder / "graph.db"))) as file:
        file.pragma("user_version", 99)
    assert "upgrade unstuck-memory" in lines(lived_in("check").stdout)["graph"][1]
    assert "upgrade unstuck-memory" in lived_in.bad("search", "Ann", code=1)
    for path in lived_in.folder.glob("graph.db*"):
        path.unlink()
    (lived_in.folder / "graph.db").write_bytes(b"this is not a database" * 500)
    assert "is damaged or not a SQLite database" in lines(lived_in("check").stdout)["graph"][1]
    assert "restore it from an archive" in lived_in.bad("show", "Ann", code=1)
