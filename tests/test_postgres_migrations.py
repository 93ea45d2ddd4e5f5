"""Migrations of PostgreSQL: by many at once, without rights to do so, and beside work that goes on."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.command import COMMAND
from support.postgres import Postgres
from support.sessions import say, session, waits
from support.waiting import until_async

from unstuck import SchemaError, StoreError, open_store
from unstuck.model import Settled, completed
from unstuck.stores.postgres import migrate as migrating
from unstuck.stores.statements import indexes, statements
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import enqueued, leased, new, one_leased, states

pytestmark = pytest.mark.anyio

MANY_JOBS = """
INSERT INTO {schema}.jobs (queue, id, task, payload, rank)
SELECT 'q', 'many-' || n, 'task', 'null', now() FROM generate_series(1, 100000) AS n
"""
INDEX = (
    "-- concurrently\n-- 002: one more.\nCREATE INDEX CONCURRENTLY jobs_parent ON {schema}.jobs (parent);\n"
)
GRANTS = """
CREATE ROLE plain LOGIN PASSWORD 'plain';
GRANT USAGE ON SCHEMA {schema} TO plain;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO plain;
"""


@pytest.fixture
async def harness(postgres_server: Postgres) -> AsyncIterator[PostgresHarness]:
    async with PostgresHarness(postgres_server.url()) as harness:
        yield harness


@pytest.fixture
async def plain(harness: PostgresHarness, postgres_server: Postgres) -> AsyncIterator[str]:
    """The harness's store as a user who may use its tables, but create nothing."""
    await harness.rows(GRANTS)
    yield _as_plain(harness.url)
    await harness.rows("DROP OWNED BY plain; DROP ROLE plain")


def _as_plain(url: str) -> str:
    return f"postgresql://plain:plain@{url.partition('@')[2]}"


async def test_eight_processes_may_prepare_an_empty_database_at_once(
    postgres_server: Postgres, tmp_path: Path
) -> None:
    url = postgres_server.create_database()
    name = url.rpartition("/")[2]
    processes = [
        subprocess.Popen([COMMAND, "init", "--store", url], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    told = [(await asyncio.to_thread(process.communicate))[1] for process in processes]

    assert [(process.returncode, said) for process, said in zip(processes, told, strict=True)] == [
        (0, "")
    ] * 8
    applied = postgres_server.execute("SELECT version FROM unstuck.migrations ORDER BY version", name)
    assert applied == [(number,) for number in range(1, len(statements(migrating.PACKAGE, ".sql")) + 1)]
    async with open_store(url) as store:
        await one_leased(store)


async def test_a_user_without_rights_to_create_can_work_on_a_schema_that_is_up_to_date(plain: str) -> None:
    async with open_store(plain) as store:
        await store.migrate()
        job = await one_leased(store)
        assert await store.settle([completed(job.lease)]) == [Settled.APPLIED]
        await store.pause("q", "")
        assert await store.take("bucket", 1, 1, 60.0)
        assert await states(store) == {"completed": 1}
        assert await store.verify() == []


async def test_a_user_without_rights_to_create_is_told_to_have_init_run(plain: str) -> None:
    url = plain.partition("schema=")[0] + "schema=not_there"
    async with open_store(url) as store:
        with pytest.raises(SchemaError, match=r"'not_there'.*unstuck init"):
            await store.enqueue([new()])
        with pytest.raises(SchemaError, match=r"'not_there'.*may not create.*unstuck init"):
            await store.migrate()


async def test_a_schema_that_needs_a_newer_release_is_refused_and_one_that_does_not_is_used(
    harness: PostgresHarness,
) -> None:
    await harness.rows("INSERT INTO {schema}.migrations VALUES (99, 'later', 1)")
    await harness.store.migrate()
    assert await enqueued(harness.store)

    await harness.rows("UPDATE {schema}.migrations SET needs = 98 WHERE version = 99")
    with pytest.raises(SchemaError, match=r"version 99 .*knows version 98.*upgrade unstuck"):
        await harness.store.migrate()
    with pytest.raises(SchemaError, match=r"version 99 .*knows version 98.*upgrade unstuck"):
        await open_store(harness.url).__aenter__()


async def test_doctor_names_an_index_that_is_missing_and_the_command_that_makes_it_again(
    harness: PostgresHarness,
) -> None:
    before = await harness.store.checkup()
    await harness.rows("DROP INDEX {schema}.jobs_ready")
    await harness.rows("DROP INDEX {schema}.jobs_finished")

    lost = [finding for finding in await harness.store.checkup() if finding.level == "failure"]
    assert [finding.what for finding in lost] == [
        f"index {name} is missing: jobs are found slowly" for name in ("jobs_ready", "jobs_finished")
    ]
    for finding in lost:
        for command in finding.fix.split("; "):
            await harness.rows(command)

    assert await harness.store.checkup() == before


def test_an_index_that_a_later_migration_drops_is_not_missed() -> None:
    migrations = [
        "CREATE TABLE t (a int);\nCREATE INDEX one ON {schema}.t (a);\nCREATE UNIQUE INDEX two ON t (a);\n",
        INDEX + "DROP INDEX CONCURRENTLY IF EXISTS {schema}.one;\n",
        "DROP INDEX two;\nCREATE INDEX two ON t (b)\n    WHERE b > 0;\n",
    ]

    assert indexes(migrations) == {
        "jobs_parent": "CREATE INDEX jobs_parent ON {schema}.jobs (parent)",
        "two": "CREATE INDEX two ON t (b)\n    WHERE b > 0",
    }


async def test_an_index_that_is_made_concurrently_holds_up_nobody(
    harness: PostgresHarness, postgres_server: Postgres
) -> None:
    await harness.rows(MANY_JOBS)
    store = await harness.another()
    async with session(postgres_server.url()) as writer, store._lines.one(None) as connection:  # type: ignore[attr-defined]
        await say(writer, "UPDATE {schema}.jobs SET stage = 'mine' WHERE id = 'many-1'", harness)
        place = store._place  # type: ignore[attr-defined]
        applying = asyncio.create_task(migrating._apply(connection, place, 99, "later", INDEX))
        await waits(harness, "CONCURRENTLY")
        async with asyncio.timeout(15):  # who is held up by the index waits for the writer, and so for ever
            await enqueued(harness.store, 10)
            [job] = await leased(harness.store)
            assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]
        assert not applying.done()
        await writer.commit()
        await applying

    [(valid,)] = await harness.rows(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = '{schema}.jobs_parent'::regclass"
    )
    assert valid


async def test_many_who_migrate_at_once_do_not_deadlock_with_a_concurrent_index(
    harness: PostgresHarness, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for one of them, which must not wait for them in turn."""
    files = statements(migrating.PACKAGE, ".sql") | {"002_parent": INDEX}
    monkeypatch.setattr(migrating, "statements", lambda *_: files)
    stores = [harness.store.twin() for _ in range(6)]

    opened = []

    async def migrate(number: int) -> None:
        async with stores[number] as store:
            opened.append(store)
            await store.migrate()

    async with session(postgres_server.url()) as writer:
        await enqueued(harness.store)
        await say(writer, "UPDATE {schema}.jobs SET stage = 'mine'", harness)
        all_of_them = asyncio.gather(*map(migrate, range(6)))
        await waits(harness, "CONCURRENTLY")
        await until_async(lambda: len(opened) == 6, 30, "all to have come")
        await writer.commit()
        async with asyncio.timeout(60):
            await all_of_them

    assert await harness.rows("SELECT version FROM {schema}.migrations ORDER BY version") == [(1,), (2,)]


async def test_a_plain_migration_that_cannot_get_its_lock_gives_up_before_others_pile_up(
    harness: PostgresHarness, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = statements(migrating.PACKAGE, ".sql") | {
        "002_more": "ALTER TABLE {schema}.jobs ADD COLUMN more text"
    }
    monkeypatch.setattr(migrating, "statements", lambda *_: files)
    monkeypatch.setattr(migrating, "LOCK_TIMEOUT", "200ms")
    async with session(postgres_server.url()) as reader:
        await say(reader, "SELECT count(*) FROM {schema}.jobs", harness)
        with pytest.raises(StoreError, match="lock timeout"):
            await harness.store.migrate()
        assert await enqueued(harness.store)
        await reader.rollback()

    await harness.store.migrate()
    assert await enqueued(harness.store)
