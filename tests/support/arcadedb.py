"""ArcadeDB, a server that speaks Bolt and Cypher out of a wheel: stands in where Neo4j cannot be had.

It locks nothing, but refuses what comes second when it commits: what depends on locks it cannot prove.
"""

import importlib.util
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import neo4j
import pytest
from neo4j.exceptions import DriverError, Neo4jError

from support.neo4j import INSTALL, QUEUE
from support.servers import Server, free_port, missing

SERVE = Path(__file__).with_name("arcadedb_serve.py")
USER, PASSWORD = "root", secrets.token_hex(8)
NEED_LOCKS = (
    "test_many_leasers_at_once_stay_within_the_limit",
    "test_many_leasers_at_once_stay_within_every_lanes_limit",
    "test_a_record_is_made_and_deleted_by_many_at_once",
    "test_many_takers_at_once_share_exactly_the_capacity",
    "test_no_change_of_many_at_once_is_lost",
    "test_no_change_of_many_processes_is_lost",
    "test_of_many_that_make_a_record_at_once_one_wins",
    "test_changes_of_different_things_at_once_are_all_made",
    "test_no_other_worker_slips_in_between",
    "test_of_many_ticks_at_once_one_is_let_pass",
    "test_of_two_that_make_a_schedule_at_once_one_wins",
    "test_a_stored_schedule_fires_each_slot_once_for_all_programs",
    "test_ticks_for_different_slots_at_once_leave_the_latest",
)


class ArcadeDB(Server):
    """A new, empty server in a folder of its own, which is removed on leaving the context."""

    name = "ArcadeDB in place of Neo4j"

    def __init__(self) -> None:
        if not here():
            missing("Neo4j", f"{INSTALL}; or, for a part of the tests, pip install arcadedb-embedded")
        self.folder = Path(tempfile.mkdtemp(prefix="unstuck-"))
        env = os.environ | {"ARCADEDB_PASSWORD": PASSWORD}
        super().__init__(self._argv, _answers, self.folder, env=env, timeout=120)

    def __exit__(self, *_: object) -> None:
        self.kill9()
        shutil.rmtree(self.folder)

    def url(self) -> str:
        return f"bolt://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{QUEUE}"

    def _argv(self, port: int, data_dir: Path) -> Sequence[str]:
        return [sys.executable, "-P", str(SERVE), str(port), str(free_port()), str(data_dir), QUEUE]


def here() -> bool:
    """Whether it may stand in: in CI, where nothing may be missing, it does not."""
    return os.environ.get("CI") != "true" and importlib.util.find_spec("arcadedb_embedded") is not None


def adapt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what ArcadeDB has not: a database's number, and to wait for indexes and to look at them."""
    from unstuck.stores.neo4j.client import Neo4jClient

    asked = Neo4jClient.rows

    async def rows(self: Neo4jClient, text: str, **options: Any) -> list[list[Any]]:
        return [] if "db.awaitIndexes" in text else await asked(self, text, **options)

    monkeypatch.setattr(Neo4jClient, "rows", rows)
    identity = "OPTIONAL MATCH (s:{label}Store {name: 'store'}) RETURN 'this one', s.birth, 0"
    monkeypatch.setattr("unstuck.stores.neo4j.client._IDENTITY", identity)

    async def nothing(_: Neo4jClient) -> dict[str, str]:
        return {}

    monkeypatch.setattr("unstuck.stores.neo4j.migrate.missing", nothing)


def _answers(port: int) -> bool:
    with neo4j.GraphDatabase.driver(
        f"bolt://127.0.0.1:{port}", auth=(USER, PASSWORD), connection_timeout=2
    ) as driver:
        try:
            with driver.session(database=QUEUE) as session:
                return session.run("RETURN 1").single() is not None
        except (DriverError, Neo4jError, OSError):
            return False
