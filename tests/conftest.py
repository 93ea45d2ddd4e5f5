"""What the tests of the package share."""

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
from support.bull import Bull
from support.command import TASKS, Command, unstuck
from support.neo4j import Neo4j
from support.node import NEWEST, OLDEST
from support.postgres import FLAVOURS, Postgres
from support.product import TABLES, Product, product
from support.redis import FLAVOURS as REDIS_FLAVOURS
from support.redis import Redis
from support.workers import Workers

from unstuck import Unstuck, open_store
from unstuck.protocol.store import Store
from unstuck.testing import Harness, PostgresHarness, RedisHarness, SQLiteHarness

# Django 6 needs Python 3.12: its tests are not there on an older one, and run on the second interpreter.
collect_ignore = ["contrib/test_django.py"] if sys.version_info < (3, 12) else []


def each(flavours: Sequence[str]) -> "list[pytest.ParameterSet]":  # quoted: mutmut needs an older pytest
    """Every server of a kind; all but the first are left out on further Python versions."""
    first, *others = flavours
    return [pytest.param(first), *(pytest.param(one, marks=pytest.mark.further) for one in others)]


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
