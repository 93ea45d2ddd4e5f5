"""The verb check on a Neo4j server that asks for a password."""

import pytest
from support.neo4j import PASSWORD, QUEUE, Neo4j
from support_memory.verbs import Command

pytestmark = pytest.mark.timeout(300)
WRONG = "another-password-that-is-wrong"


@pytest.mark.accepts("T19")
def test_check_fails_for_a_wrong_password_and_prints_none(command: Command, queue_server: Neo4j) -> None:
    graph = {
        "NEO4J_URI": queue_server.uri, "NEO4J_USERNAME": "neo4j", "NEO4J_PASSWORD": PASSWORD, "NEO4J_DATABASE": QUEUE,
    }  # fmt: skip
    jobs = {
        "EMBED_JOB_DATABASE_URI": queue_server.uri, "EMBED_JOB_DATABASE_USERNAME": "neo4j", "EMBED_JOB_DATABASE_PASSWORD": PASSWORD,
    }  # fmt: skip
    command.good("init", **jobs)
    command.good("check", **jobs)
    for wrong, failed in (
        (graph | jobs | {"NEO4J_PASSWORD": WRONG}, "graph"),
        (jobs | {"EMBED_JOB_DATABASE_PASSWORD": WRONG}, "queue"),
    ):
        answer = command("check", **wrong)
        assert (answer.exit_code, answer.stderr) == (1, "")
        found = {row.split()[0]: row for row in answer.stdout.splitlines()}
        assert [what for what, row in found.items() if "FAILED" in row] == [failed]
        assert queue_server.uri in found[failed]
        assert not any(secret in answer.output for secret in (PASSWORD, WRONG))
