"""A running product with tables of jobs of its own, as its migrations made them, and an old worker of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection

from support.postgres import Postgres
from unstuck import Reaper
from unstuck.protocol.availability import Clock
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Share
from unstuck.protocol.store import Store
from unstuck.stores import open_tables
from unstuck.stores.postgres.foreign.layout import Layout, layouts
from unstuck.stores.postgres.foreign.tables import Tables

# First as it was, then what its later migrations added.
MIGRATIONS = """
CREATE TYPE job_status AS ENUM ('queued', 'processing', 'done', 'failed');
CREATE TABLE jobs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    status job_status NOT NULL DEFAULT 'queued',
    progress integer NOT NULL DEFAULT 0,
    source_key text,
    start_sec integer NOT NULL DEFAULT 0,
    error_code text,
    error_message text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE asr_jobs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    clip_job_id uuid REFERENCES jobs (id) ON DELETE SET NULL,
    status text NOT NULL DEFAULT 'queued',
    error_code text,
    error_message text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE job_events (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    job_id uuid NOT NULL,
    ts timestamptz NOT NULL DEFAULT now(),
    type text NOT NULL,
    data jsonb
);
CREATE INDEX idx_job_events_job ON job_events (job_id);
ALTER TABLE jobs
    ADD locked_by text, ADD lease_expires_at timestamptz, ADD last_heartbeat_at timestamptz,
    ADD attempt_count integer NOT NULL DEFAULT 0, ADD max_attempts integer DEFAULT 3, ADD fail_code text,
    ADD fail_reason text, ADD stage text, ADD next_earliest_run_at timestamptz, ADD expected_duration_ms integer,
    ADD processing_started_at timestamptz;
ALTER TABLE asr_jobs
    ADD locked_by text, ADD lease_expires_at timestamptz, ADD last_heartbeat_at timestamptz,
    ADD attempt_count integer NOT NULL DEFAULT 0, ADD max_attempts integer DEFAULT 3, ADD fail_code text,
    ADD fail_reason text, ADD stage text, ADD next_earliest_run_at timestamptz, ADD expected_duration_ms integer;
CREATE INDEX idx_jobs_status_lease ON jobs (status, lease_expires_at);
CREATE INDEX idx_asr_jobs_status_lease ON asr_jobs (status, lease_expires_at);
CREATE INDEX idx_jobs_status_last_hb ON jobs (status, last_heartbeat_at);
"""
FOREIGN_KEY = "ALTER TABLE job_events ADD FOREIGN KEY (job_id) REFERENCES jobs (id)"
TABLES = "?table=jobs&table=asr_jobs"
Row = dict[str, Any]


class Product:
    """Its database. Times of rows are given in seconds from now: negative ones are past."""

    def __init__(self, url: str, connection: AsyncConnection[tuple[Any, ...]]) -> None:
        self.url = url
        self._connection = connection

    async def say(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = await self._connection.execute(sql.encode(), params or None)
        return await cursor.fetchall() if cursor.description else []

    async def add(self, table: str = "jobs", **facts: Any) -> str:
        """A row; its id."""
        facts = {"status": "queued", **facts}
        times = [name for name in facts if name.endswith(("_at",)) and isinstance(facts[name], int | float)]
        values = [f"now() + make_interval(secs => %({n})s)" if n in times else f"%({n})s" for n in facts]
        sql = f"INSERT INTO {table} ({', '.join(facts)}) VALUES ({', '.join(values)}) RETURNING id::text"
        cursor = await self._connection.execute(sql.encode(), facts)
        [(id_,)] = await cursor.fetchall()
        return str(id_)

    async def stuck(self, table: str = "jobs", **facts: Any) -> str:
        """A row whose worker died: its lease ended a minute ago."""
        usual = {"status": "processing", "locked_by": "clipper-1", "attempt_count": 1}
        times = {"lease_expires_at": -60, "last_heartbeat_at": -360}
        return await self.add(table, **usual | times | facts)

    async def row(self, id_: str, table: str = "jobs") -> Row:
        [(text,)] = await self.say(f"SELECT row_to_json(t)::text FROM {table} t WHERE id::text = %s", id_)
        row: Row = json.loads(text)
        return row

    async def status(self, id_: str, table: str = "jobs") -> str:
        return str((await self.row(id_, table))["status"])

    async def left(self, id_: str, column: str, table: str = "jobs") -> float | None:
        """Seconds until a time of a row, negative if it is past."""
        sql = (
            f"SELECT extract(epoch FROM {column} - clock_timestamp())::float FROM {table} WHERE id::text = %s"
        )
        [(seconds,)] = await self.say(sql, id_)
        return None if seconds is None else float(seconds)

    async def span(self, id_: str, column: str, since: str, table: str = "jobs") -> float:
        """Seconds from one time of a row to another: what was meant, however long ago that is."""
        sql = f"SELECT extract(epoch FROM {column} - {since})::float FROM {table} WHERE id::text = %s"
        [(seconds,)] = await self.say(sql, id_)
        return float(seconds)

    async def events(self, id_: str) -> list[Row]:
        """What was told of a row, as data."""
        found = await self.say(
            "SELECT data::text FROM job_events WHERE job_id::text = %s ORDER BY data::json #>> '{details,at}'",
            id_,
        )
        return [json.loads(text) for (text,) in found]

    async def age(self, seconds: float, table: str = "jobs") -> None:
        """Make every time of the rows older."""
        names = [
            name
            for (name,) in await self.say(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
                " AND atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype)",
                table,
            )
        ]
        changes = ", ".join(f"{name} = {name} - make_interval(secs => {seconds})" for name in names)
        await self.say(f"UPDATE {table} SET {changes}")


# On a server that has just started, nobody is blamed for a silence of two seconds.
AGE = "SELECT pg_sleep(greatest(0, 3 - extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())))"


@asynccontextmanager
async def product(
    server: Postgres, migrations: str = MIGRATIONS, *, stays: bool = False
) -> AsyncIterator[Product]:
    """A new one. Its database is gone with it, unless it ``stays`` for a test that goes on without a connection.

    Hundreds of them would be written to disk and deleted when the server ends, which takes minutes on a busy machine.
    """
    url = server.create_database()
    async with running(url) as found:
        await found.say(AGE)
        await found.say(migrations)
        yield found
    if not stays:
        await asyncio.to_thread(server.drop_database, url)


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Product]:
    """One that is there already."""
    async with await AsyncConnection.connect(url, autocommit=True, prepare_threshold=None) as connection:
        yield Product(url, connection)


class OldTables(Tables):
    """Tables on a server that has been up for years."""

    async def clock(self) -> Clock:
        now, _ = await super().clock()
        return Clock(now, 1e9)


def tables(url: str, *named: str | Layout) -> OldTables:
    """For a reaper, not opened yet."""
    found = open_tables(url, layouts(named or ("jobs", "asr_jobs")))
    return OldTables(found._address)


class OldWorker:
    """Knows nothing of leases: it takes a row and, if it lives, finishes it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        self._connection = psycopg.connect(self._url, autocommit=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def take(self, table: str = "jobs") -> str | None:
        found = self._connection.execute(
            f"UPDATE {table} SET status = 'processing' WHERE id = (SELECT id FROM {table} WHERE status = 'queued'"
            " ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id::text".encode()
        ).fetchall()
        return found[0][0] if found else None

    def finish(self, id_: str, table: str = "jobs") -> int:
        """How many rows that ended: one."""
        sql = f"UPDATE {table} SET status = 'done' WHERE id::text = %s"
        return self._connection.execute(sql.encode(), [id_]).rowcount


def types(events: Sequence[Row]) -> list[str]:
    return [event["type"] for event in events]


async def taken(
    store: Store, limit: int = 1, table: str = "jobs", owner: str = "w", seconds: float = 20.0
) -> list[Job]:
    return await store.lease({table: Share(seconds, limit)}, limit, owner)


async def recovery(shop: Product, *named: str | Layout, **how: Any) -> tuple[list[str], tuple[str, ...]]:
    """What was done to which rows in one recovery, and what could not be done."""
    async with tables(shop.url, *named) as opened:
        reaper = Reaper(opened, **how)
        return [outcome.event for outcome in await reaper.recover()], reaper.troubles
