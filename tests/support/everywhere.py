"""What all tests share, those of the applications too: servers for a whole run, and the rules of the suite."""

from collections.abc import Iterator

import hypothesis
import pytest

from support import arcadedb
from support.neo4j import GRAPH, QUEUE, Neo4j
from support.postgres import Postgres
from support.redis import Redis

# Hypothesis would fail an example that takes 200 ms, as any can when the machine has others to run.
hypothesis.settings.register_profile("patient", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def pg15() -> Iterator[Postgres]:
    with Postgres("15") as server:
        yield server


@pytest.fixture(scope="session")
def pg18() -> Iterator[Postgres]:
    with Postgres("18") as server:
        yield server


@pytest.fixture(scope="session")
def redis7() -> Iterator[Redis]:
    with Redis("redis") as server:
        yield server


@pytest.fixture(scope="session")
def valkey9() -> Iterator[Redis]:
    with Redis("valkey") as server:
        yield server


@pytest.fixture(scope="session")
def queue_server() -> Iterator[Neo4j]:
    with Neo4j(QUEUE, password=True) as server:
        yield server


@pytest.fixture(scope="session")
def graph_server() -> Iterator[Neo4j]:
    with Neo4j(GRAPH) as server:
        yield server


@pytest.fixture(scope="session")
def arcadedb_server() -> Iterator[arcadedb.ArcadeDB]:
    with arcadedb.ArcadeDB() as server:
        yield server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that names many lines proves none of them well."""
    for item in items:
        lines = [line for mark in item.iter_markers("accepts") for line in mark.args]
        if len(lines) > 3:
            raise pytest.UsageError(f"{item.nodeid} names {len(lines)} acceptance lines: at most three")
