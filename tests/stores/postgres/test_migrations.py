"""Migrations of PostgreSQL: by many at once, without rights to do so, and beside work that goes on."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection
from support.command import COMMAND
from support.postgres import Postgres
from support.sessions import say, session, waits
from support.waiting import until_async

from unstuck import SchemaError, StoreError, open_store
from unstuck.operations.verify import broken_rules
from unstuck.protocol.job import Category
from unstuck.protocol.leases import Recovery
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Settled, completed, failed
from unstuck.protocol.store import Store
from unstuck.stores.postgres import migrate as migrating
from unstuck.stores.shared.statements import indexes, statements
from unstuck.testing import PostgresHarness
from unstuck.testing.conformance.given import (
    counts,
    enqueued,
    leased,
    new,
    one_leased,
    states,
    trouble,
)
from unstuck.testing.conformance.spacing import throttled

pytestmark = pytest.mark.anyio

MANY_JOBS = """
INSERT INTO {schema}.jobs (queue, id, task, payload, rank)
SELECT 'q', 'many-' || n, 'task', 'null', now() FROM generate_series(1, 100000) AS n
"""
INDEX = (
    "-- concurrently\n-- 006: one more.\nCREATE INDEX CONCURRENTLY jobs_parent ON {schema}.jobs (parent);\n"
)
# What the release before halts had columns asks of this table.
PAUSE = """
INSERT INTO {schema}.queues (name, paused_at, paused_why) VALUES (%s, clock_timestamp(), %s)
ON CONFLICT (name) DO UPDATE
SET paused_at = coalesce(queues.paused_at, excluded.paused_at), paused_why = excluded.paused_why
"""
RESUME = "UPDATE {schema}.queues SET paused_at = NULL, paused_why = NULL WHERE name = %s AND paused_at IS NOT NULL RETURNING 1"
QUEUES = "SELECT name, paused_why FROM {schema}.queues WHERE paused_at IS NOT NULL"
LEASE = "SELECT name FROM {schema}.queues WHERE name = %s AND paused_at IS NULL FOR SHARE"
# How it adds, leases and ends a job.
ENQUEUE = """
INSERT INTO {schema}.jobs (queue, id, task, payload, created_at, next_earliest_run_at, rank, max_attempts)
VALUES ('q', 'theirs', 'task', 'null', now(), now(), now(), 3)
"""
TAKE = """
UPDATE {schema}.jobs SET status = 'processing', rank = NULL, attempt_count = attempt_count + 1, fence = 5, locked_by = 'old',
    lease_expires_at = now() + interval '1 hour'
WHERE id = %s
"""
COMPLETE = """
UPDATE {schema}.jobs SET status = 'completed', finished_at = now(), settled_fence = fence, settled = 'completed',
    locked_by = NULL, lease_expires_at = NULL
WHERE id = %s AND fence = 5
"""
WHY = "CRITICAL: the disk is broken"
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


class Previous:
    """A process of the release before halts had columns, on a schema that it has made."""

    def __init__(self, harness: PostgresHarness, connection: AsyncConnection[tuple[Any, ...]]) -> None:
        self.harness, self.connection = harness, connection

    async def ask(self, sql: str, *params: str) -> list[tuple[Any, ...]]:
        """As a store does: what is asked again is prepared, and the server may keep its plan."""
        text = sql.replace("{schema}", self.harness.schema).encode()
        cursor = await self.connection.execute(text, params, prepare=True)
        return await cursor.fetchall() if cursor.description else []


@pytest.fixture
async def previous(postgres_server: Postgres) -> AsyncIterator[Previous]:
    first = dict(list(statements(*migrating.MIGRATIONS).items())[:1])
    async with AsyncExitStack() as opened:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(migrating, "statements", lambda *_: first)
            harness = await opened.enter_async_context(PostgresHarness(postgres_server.url()))
        url = postgres_server.url()
        connection = await opened.enter_async_context(await AsyncConnection.connect(url, autocommit=True))
        yield Previous(harness, connection)


async def stopped(store: Store, queue: str = "q") -> tuple[str | None, str | None]:
    of = await counts(store, queue)
    return of.paused, of.halted


async def halt(store: Store) -> None:
    job = await one_leased(store)
    await store.settle([failed(job.lease, trouble(Category.CRITICAL), halt=WHY)])


async def test_halts_of_the_previous_release_are_halts_and_its_pauses_are_pauses(previous: Previous) -> None:
    for queue, why in (
        ("halted", WHY), ("paused", "by hand"), ("critical", "CRITICAL fix is being deployed"), ("resumed", WHY),
    ):  # fmt: skip
        await previous.ask(PAUSE, queue, why)
    await previous.ask(RESUME, "resumed")
    store = previous.harness.store

    await store.migrate()

    assert {of.queue: (of.paused, of.halted) for of in await store.count()} == {
        "halted": (None, WHY),
        "paused": ("by hand", None),
        "critical": ("CRITICAL fix is being deployed", None),
    }
    assert await store.pause("halted", None)
    assert await stopped(store, "halted") == (None, None)


async def test_the_schema_grows_while_the_previous_release_leases_and_pauses(previous: Previous) -> None:
    """What it has prepared goes on. A lease of its that is under way is waited for."""
    store, connection = previous.harness.store, previous.connection
    for sql, params in ((PAUSE, ("q", "by hand")), (QUEUES, ()), (RESUME, ("q",)), (LEASE, ("q",))):
        for _ in range(2):
            await previous.ask(sql, *params)

    async with connection.transaction():
        assert await previous.ask(LEASE, "q") == [("q",)]
        migrating_now = asyncio.create_task(store.migrate())
        await waits(previous.harness, "ALTER TABLE")
    await migrating_now

    assert await previous.ask(LEASE, "q") == [("q",)]
    await previous.ask(PAUSE, "q", "by hand")
    assert await previous.ask(LEASE, "q") == []
    assert await previous.ask(QUEUES) == [("q", "by hand")]
    assert await stopped(store) == ("by hand", None)
    assert await previous.ask(RESUME, "q") == [(1,)]
    assert await enqueued(store)
    needed = await previous.harness.rows("SELECT max(needs) FROM {schema}.migrations")
    assert needed == [(0,)]  # or that release would not start again


async def test_the_previous_release_obeys_shows_and_lifts_a_halt(previous: Previous) -> None:
    store = previous.harness.store
    await store.migrate()
    await halt(store)
    await enqueued(store)

    assert await previous.ask(QUEUES) == [("q", WHY)]
    assert await previous.ask(LEASE, "q") == []

    assert await previous.ask(RESUME, "q")
    assert await stopped(store) == (None, None)
    assert len(await leased(store)) == 1
    assert await store.pause("q", None) is False


async def test_what_the_previous_release_left_of_a_halt_is_no_reason_of_its_next_pause(
    previous: Previous,
) -> None:
    store = previous.harness.store
    await store.migrate()
    await halt(store)
    await previous.ask(RESUME, "q")

    await previous.ask(PAUSE, "q", "by hand")
    assert await stopped(store) == ("by hand", None)

    await previous.ask(RESUME, "q")
    await previous.ask(PAUSE, "q", WHY)  # a worker of that release halts: from now on that is a pause
    assert await stopped(store) == (WHY, None)


async def test_a_pause_by_the_previous_release_leaves_a_halt(previous: Previous) -> None:
    store = previous.harness.store
    await store.migrate()
    await halt(store)

    await previous.ask(PAUSE, "q", "by hand")

    assert await stopped(store) == ("by hand", WHY)


async def test_a_release_that_knows_no_expiry_works_beside_ours(previous: Previous) -> None:
    """What it enqueues does not expire. What it takes late is its to end."""
    store = previous.harness.store
    await store.migrate()
    await previous.ask(ENQUEUE)
    [late] = await enqueued(store, expires=0.001)

    await previous.ask(TAKE, late.id)
    assert (await store.reclaim(Recovery("reaper", 10.0, 10))).jobs == []
    found = {job.id: job for job in (await store.find(Filter())).jobs}
    assert (found["theirs"].expires_at, found[late.id].attempts) == (None, 1)

    [job] = await leased(store)
    assert job.id == "theirs"
    await previous.ask(COMPLETE, late.id)
    assert await states(store) == {"processing": 1, "completed": 1}


async def test_a_schema_that_is_not_migrated_yet_leads_to_init(previous: Previous) -> None:
    with pytest.raises(SchemaError, match=r"halted_.*unstuck init"):
        await previous.harness.store.count()


async def test_records_come_to_a_schema_while_a_release_that_has_none_works_on_it(
    harness: PostgresHarness,
) -> None:
    known = dict(list(statements(*migrating.MIGRATIONS).items())[:2])
    await harness.rows("DROP TABLE {schema}.records; DROP TABLE {schema}.spacing")
    await harness.rows("DELETE FROM {schema}.migrations WHERE version > 2")
    job = await one_leased(harness.store)
    with pytest.raises(SchemaError, match=r"records.*unstuck init"):
        await harness.store.keep("k", "n", 1)

    await harness.store.migrate()

    assert (await harness.store.keep("k", "n", 1)).applied
    assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrating, "statements", lambda *_: known)
        previous = await harness.another()
    assert await enqueued(previous)


async def test_spacing_comes_to_a_schema_while_a_release_that_has_none_works_on_it(
    harness: PostgresHarness,
) -> None:
    known = dict(list(statements(*migrating.MIGRATIONS).items())[:3])
    await harness.rows("DROP TABLE {schema}.spacing; DELETE FROM {schema}.migrations WHERE version >= 4")
    job = await one_leased(harness.store)
    with pytest.raises(SchemaError, match=r"spacing.*unstuck init"):
        await harness.store.enqueue([throttled()])

    await harness.store.migrate()

    answers = await harness.store.enqueue([throttled(), throttled()])
    assert [answer.created for answer in answers] == [True, False]
    assert await harness.store.settle([completed(job.lease)]) == [Settled.APPLIED]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrating, "statements", lambda *_: known)
        previous = await harness.another()
    assert await enqueued(previous)


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
    assert applied == [(number,) for number in range(1, len(statements(*migrating.MIGRATIONS)) + 1)]
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
        assert await broken_rules(store) == []


async def test_the_error_of_a_user_without_rights_to_create_asks_for_init(plain: str) -> None:
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
    async with session(postgres_server.url()) as writer, store._connections.one(None) as connection:  # type: ignore[attr-defined]
        await say(writer, "UPDATE {schema}.jobs SET stage = 'mine' WHERE id = 'many-1'", harness)
        address = store._address  # type: ignore[attr-defined]
        applying = asyncio.create_task(migrating._apply(connection, address, 99, "later", INDEX))
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
    files = statements(*migrating.MIGRATIONS) | {"007_parent": INDEX}
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

    assert await harness.rows("SELECT version FROM {schema}.migrations ORDER BY version") == [
        (1,),
        (2,),
        (3,),
        (4,),
        (5,),
        (6,),
        (7,),
    ]


async def test_a_plain_migration_that_cannot_get_its_lock_gives_up_before_others_pile_up(
    harness: PostgresHarness, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = statements(*migrating.MIGRATIONS) | {"007_more": "ALTER TABLE {schema}.jobs ADD COLUMN more text"}
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
