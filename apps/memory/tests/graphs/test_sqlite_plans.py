"""How the statements of a SQLite graph find what they read, with 100,000 entities there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest
from unstuck_memory.graphs.sqlite import SqliteGraph, embeddings
from unstuck_memory.graphs.sqlite.threads import Transaction
from unstuck_memory.vectors import Model

MODEL = Model("m", 4)
MANY = 100_000
LACKING = 40

FILL = """
INSERT INTO entity (
    uid, project, name, folded, type, version, created_at, updated_at, valid_from, observations
)
WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < :many)
SELECT printf('uid %06d', n), 'p', printf('name %06d', n), printf('name%06d', n), 't', 1, n, n, n, '["sings"]' FROM series;
INSERT INTO embedding (entity, model, project, type, version, fence, change, bits)
SELECT id, 1, project, type, 1, 1, id, zeroblob(8) FROM entity WHERE id % (:many / :lacking) <> 0;
INSERT INTO missing (model, since, uid, project, entity)
SELECT 1, valid_from, uid, project, id FROM entity WHERE id % (:many / :lacking) = 0;
UPDATE model SET known_at = :many, marked_to = :many;
ANALYZE;
"""
PARAMETERS = (
    "after at before bits change changed_by confidence created_at dimension ends_since entities entity entity_type fence folded from "
    "hash hashes id into limit metadata model name names new now number numbers observation observations old project query since "
    "source strength target to type types uid uids updated_at valid_from valid_to vector vectors version"
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "graph.db"

    async def begin() -> None:
        async with SqliteGraph(path) as graph:
            await graph.migrate()
            await graph.use_model(MODEL)

    anyio.run(begin)
    connection = apsw.Connection(str(path))
    with connection:
        connection.execute(FILL, {"many": MANY, "lacking": LACKING})
    connection.close()
    return path


@pytest.fixture
def tx(filled: Path) -> Iterator[Transaction]:
    connection = apsw.Connection(str(filled))
    yield Transaction(connection, SqliteGraph(filled)._sql)
    connection.close()


def _plan(tx: Transaction, name: str) -> list[str]:
    values: dict[str, Any] = dict.fromkeys(PARAMETERS.split(), "1")
    return [row[3] for row in tx.connection.execute(f"EXPLAIN QUERY PLAN {tx._sql[name]}", values)]


def test_no_statement_reads_a_whole_table(tx: Transaction) -> None:
    """Neither of a project that is small beside others: every table that grows is searched by an index."""
    grown = re.compile("SCAN (entity|relation|source|target|embedding|chunk|vector|missing|unused)( |$)")
    plans = {name: _plan(tx, name) for name in tx._sql}
    assert len(plans) > 60
    assert {name: plan for name, plan in plans.items() if any(map(grown.match, plan))} == {}
    assert any("SEARCH entity USING INDEX entity_name" in step for step in plans["entities_named"])


@pytest.mark.accepts("EMB-113", "EMB-115", "EMB-116")
@pytest.mark.parametrize("project", [None, "p"])
def test_entities_without_embeddings_are_read_from_an_index_of_only_those(
    tx: Transaction, project: str | None
) -> None:
    name = "missing_in_project" if project else "missing"
    index = "INDEX missing_in_project (model=? AND project=?" if project else "PRIMARY KEY (model=?"
    plan = _plan(tx, name)
    assert any(step.startswith(f"SEARCH missing USING {index}") for step in plan), plan
    assert "SEARCH entity USING INTEGER PRIMARY KEY (rowid=?)" in plan
    assert not any("TEMP B-TREE" in step for step in plan), "it comes in order"

    profiles: list[dict[str, Any]] = []
    tx.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profiles.append)
    found = embeddings.without(tx, MODEL, 10, project, None)
    rest = embeddings.without(tx, MODEL, 1000, project, found[-1])
    tx.connection.trace_v2(0)

    assert len(found) == 10
    assert len(rest) == LACKING - 10
    steps = [
        profile["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
        for profile in profiles
        if "missing" in profile["sql"]
    ]
    assert len(steps) == 2
    assert max(steps) < 50 * LACKING, "it grows with what is missing, not with what is there"
