"""What all tests share."""

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest
from support import arcadedb
from support.bull import Bull
from support.command import TASKS, Command, unstuck
from support.neo4j import GRAPH, QUEUE, Neo4j
from support.node import NEWEST, OLDEST
from support.postgres import FLAVOURS, Postgres
from support.product import TABLES, Product, product
from support.redis import FLAVOURS as REDIS_FLAVOURS
from support.redis import Redis
from support.workers import Workers

from unstuck import Unstuck, open_store
from unstuck.protocol.store import Store
from unstuck.testing import Harness, PostgresHarness, RedisHarness, SQLiteHarness

pytest_plugins = ["support.groups", "support.summary"]
# Hypothesis would fail an example that takes 200 ms, as any can when the machine has others to run.
hypothesis.settings.register_profile("patient", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("patient")
# Django 6 needs Python 3.12: its tests are not there on an older one, and run on the second interpreter.
collect_ignore = ["contrib/test_django.py"] if sys.version_info < (3, 12) else []


def each(flavours: Sequence[str]) -> "list[pytest.ParameterSet]":  # quoted: mutmut needs an older pytest
    """Every server of a kind; all but the first are left out on further Python versions."""
    first, *others = flavours
    return [pytest.param(first), *(pytest.param(one, marks=pytest.mark.further) for one in others)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SQLiteHarness]:
    async with SQLiteHarness(tmp_path) as harness:
        yield harness


@pytest.fixture
def workers(harness: Harness, tmp_path: Path) -> Iterator[Workers]:
    with Workers(harness, tmp_path) as workers:
        yield workers


@pytest.fixture
def run(tmp_path: Path) -> Command:
    """The command in an empty folder, or rather one with an app in ``tasks.py``."""
    (tmp_path / "tasks.py").write_text(TASKS)
    return lambda *args, **options: unstuck(tmp_path, *args, **options)


@pytest.fixture
async def app(harness: Harness) -> AsyncIterator[Unstuck]:
    async with Unstuck(harness.url) as app:
        yield app


@pytest.fixture(scope="session")
def pg15() -> Iterator[Postgres]:
    with Postgres("15") as server:
        yield server


@pytest.fixture(scope="session")
def pg18() -> Iterator[Postgres]:
    with Postgres("18") as server:
        yield server


@pytest.fixture(params=each(FLAVOURS))
def postgres_server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """Each PostgreSQL in turn. A test may pause, stop or kill it: the next one finds it running again."""
    server: Postgres = request.getfixturevalue(f"pg{request.param}")
    yield server
    if server.running:
        server.resume()
    else:
        server.start()


@pytest.fixture
async def on_postgres(postgres_server: Postgres) -> AsyncIterator[PostgresHarness]:
    """For tests of several stores, beside a ``harness`` that is on another."""
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness


@pytest.fixture(scope="session")
def redis7() -> Iterator[Redis]:
    with Redis("redis") as server:
        yield server


@pytest.fixture(scope="session")
def valkey9() -> Iterator[Redis]:
    with Redis("valkey") as server:
        yield server


@pytest.fixture(params=each(REDIS_FLAVOURS))
def redis_server(request: pytest.FixtureRequest) -> Iterator[Redis]:
    """Each Redis in turn. A test may pause, stop or kill it: the next one finds it running again."""
    server: Redis = request.getfixturevalue({"redis": "redis7", "valkey": "valkey9"}[request.param])
    yield server
    if server.running:
        server.resume()
    else:
        server.start()


@pytest.fixture(params=[NEWEST, pytest.param(OLDEST, marks=pytest.mark.long)])
def bull(request: pytest.FixtureRequest, redis7: Redis, harness: RedisHarness, tmp_path: Path) -> Bull:
    """BullMQ on the queues of a test's store, which is on that server."""
    return Bull(request.param, redis7, harness, tmp_path / "node.log")


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


@pytest.fixture
def neo4j_server(queue_server: Neo4j) -> Iterator[Neo4j]:
    """The Neo4j of the queue. A test may pause, stop or kill it: the next one finds it running again."""
    yield queue_server
    if queue_server.running:
        queue_server.resume()
    else:
        queue_server.start()


@pytest.fixture
async def shop(postgres_server: Postgres) -> AsyncIterator[Product]:
    """A product with tables of jobs of its own."""
    async with product(postgres_server) as made:
        yield made


@pytest.fixture
async def store(shop: Product) -> AsyncIterator[Store]:
    """Its tables as queues among ours."""
    async with open_store(shop.url + TABLES) as opened:
        await opened.migrate()
        yield opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that names many lines proves none of them well."""
    for item in items:
        lines = [line for mark in item.iter_markers("accepts") for line in mark.args]
        if len(lines) > 3:
            raise pytest.UsageError(f"{item.nodeid} names {len(lines)} acceptance lines: at most three")
