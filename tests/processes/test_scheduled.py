"""Worker processes that fire schedules made at run time, on every store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.neo4j import here
from support.scheduled import scheduled
from support.workers import Workers

from unstuck.testing import Harness, Neo4jHarness, PostgresHarness, RedisHarness, SQLiteHarness

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture(params=["sqlite", "postgres", "redis", "neo4j"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    match request.param:
        case "sqlite":
            async with SQLiteHarness(tmp_path) as on_sqlite:
                yield on_sqlite
        case "postgres":
            async with PostgresHarness(request.getfixturevalue("pg15").url()) as on_postgres:
                yield on_postgres
        case "redis":
            async with RedisHarness(request.getfixturevalue("redis7").url()) as on_redis:
                yield on_redis
        case _:
            if not here():
                pytest.skip("Neo4j is missing, and ArcadeDB in its place has no locks")
            async with Neo4jHarness(request.getfixturevalue("queue_server").url()) as on_neo4j:
                yield on_neo4j


async def test_each_slot_comes_once_and_each_change_holds_for_all_slots_after_it(workers: Workers) -> None:
    await scheduled(workers)
