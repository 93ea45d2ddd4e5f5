"""What the conformance suite needs to know about a store, besides the Store protocol."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, Self

import apsw

from unstuck.model import Ref
from unstuck.store import Clock, Store
from unstuck.stores import open_store


class Harness(Protocol):
    """An empty store, open and migrated, and the two things that tests must do behind its back.

    The store is empty at the start of every test. ``open_store(url)`` gives it in any process.
    """

    url: str
    store: Store

    async def another(self) -> Store:
        """A further client of the same data, as another process would have; closed with the harness."""
        ...

    async def age(self, seconds: float) -> None:
        """Move every stored time into the past, so that leases end and delays pass without waiting.

        That is all times of jobs and what their order was made of, of events, workers (``started_at``, ``seen_at``),
        tokens, closed buckets, slots and pauses, in one atomic step; a negative number is a clock that was put back.
        A store that has a server gives it the years, too: ``grow_old``.
        """

    async def forget_lease(self, ref: Ref) -> None:
        """Make a processing job look as a worker leaves it that knows nothing of leases.

        ``lease_until`` and ``heartbeat_at`` become None, everything else stays.
        """


def grow_old(store: Store, aged: Callable[[], float]) -> Store:
    """Let a store's server have been up for as much longer as everything else was made older.

    Else it would seem to have started after the leases were granted, and their holders would be waited for.
    """
    clock = store.clock

    async def aged_clock() -> Clock:
        now, uptime = await clock()
        return Clock(now, uptime + aged())

    store.clock = aged_clock  # type: ignore[method-assign]
    return store


class SQLiteHarness:
    """``async with SQLiteHarness(folder) as harness``"""

    def __init__(self, folder: Path, options: str = "") -> None:
        self._file = str(folder / "jobs.db")
        self.url = f"sqlite:///{self._file}{options}"
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.store = await self.another()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def another(self) -> Store:
        store = await self._opened.enter_async_context(open_store(self.url))
        await store.migrate()
        return store

    async def age(self, seconds: float) -> None:
        by = round(seconds * 1000)
        for table, columns in _TIMES.items():
            self.rows(f"UPDATE {table} SET " + ", ".join(f"{name} = {name} - {by}" for name in columns))

    async def forget_lease(self, ref: Ref) -> None:
        self.rows(
            "UPDATE job SET lease_until = NULL, heartbeat_at = NULL WHERE id = ? AND queue = ?",
            (ref.id, ref.queue),
        )

    def rows(self, sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run a statement on the file, past the store."""
        connection = apsw.Connection(self._file)
        connection.set_busy_timeout(30_000)
        try:
            return list(connection.execute(sql, params))
        finally:
            connection.close()


class PostgresHarness:
    """``async with PostgresHarness("postgresql://…")``: a new schema in that database, dropped at the end."""

    def __init__(self, url: str, options: str = "") -> None:
        self.schema = f"harness_{secrets.token_hex(6)}"
        self._database = url
        self.url = f"{url}{'&' if '?' in url else '?'}schema={self.schema}{options}"
        self._opened = AsyncExitStack()
        self._aged = 0.0

    async def __aenter__(self) -> Self:
        from psycopg import AsyncConnection

        self._connection = await AsyncConnection.connect(
            self._database, autocommit=True, prepare_threshold=None
        )
        self.store = await self.another()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()
        await self.rows("DROP SCHEMA {schema} CASCADE")
        await self._connection.close()

    async def another(self) -> Store:
        store = await self._opened.enter_async_context(open_store(self.url))
        await store.migrate()
        return grow_old(store, lambda: self._aged)

    async def age(self, seconds: float) -> None:
        """In one statement, so that hardly any real time passes meanwhile."""
        self._aged += seconds
        by = f"make_interval(secs => {seconds})"
        changes = {
            table: ", ".join(f"{name} = {name} - {by}" for name in columns)
            for table, columns in _POSTGRES_TIMES.items()
        }
        aged = [f"{table} AS (UPDATE {{schema}}.{table} SET {change})" for table, change in changes.items()]
        await self.rows(f"WITH {', '.join(aged)} SELECT")

    async def forget_lease(self, ref: Ref) -> None:
        await self.rows(
            "UPDATE {schema}.jobs SET lease_expires_at = NULL, last_heartbeat_at = NULL WHERE id = %s AND queue = %s",
            (ref.id, ref.queue),
        )

    async def rows(self, sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run a statement in the database, past the store."""
        cursor = await self._connection.execute(sql.replace("{schema}", self.schema).encode(), params)
        return await cursor.fetchall() if cursor.description else []


class RedisHarness:
    """``async with RedisHarness("redis://…")``: a new prefix on that server, whose keys are removed at the end.

    In a ``cluster`` all queues are in one slot, or ``spread`` over many.
    """

    def __init__(self, url: str, options: str = "", *, cluster: bool = False, spread: bool = False) -> None:
        self.prefix = f"harness-{secrets.token_hex(6)}"
        if cluster:
            self.prefix = self.prefix if spread else f"{{{self.prefix}}}"
            options += "&cluster=yes"
        self._spread = spread
        self._cluster = cluster
        self._server = url
        self.url = f"{url}{'&' if '?' in url else '?'}prefix={self.prefix}{options}"
        self._opened = AsyncExitStack()
        self._aged = 0.0

    async def __aenter__(self) -> Self:
        from redis.asyncio import Redis, RedisCluster

        self.client: Any = (RedisCluster if self._cluster else Redis).from_url(self._server)
        await self.client.initialize()  # or the first use would take its time
        self.store = await self.another()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()
        keys = [key async for key in self.client.scan_iter(f"{self.prefix}:*", count=5000)]
        slots: dict[int, list[bytes]] = {}
        for key in keys:
            slots.setdefault(self.client.keyslot(key) if self._cluster else 0, []).append(key)
        for some in slots.values():
            for first in range(0, len(some), 1000):
                await self.client.unlink(*some[first : first + 1000])
        await self.client.aclose()

    async def another(self) -> Store:
        store = await self._opened.enter_async_context(open_store(self.url))
        await store.migrate()
        return grow_old(store, lambda: self._aged)

    async def age(self, seconds: float) -> None:
        self._aged += seconds
        script = files("unstuck.testing").joinpath("age.lua").read_text(encoding="utf-8")
        own = f"{self.prefix}:{{unstuck}}." if self._spread else f"{self.prefix}:unstuck."
        queues = await self.client.smembers(f"{own}queues")
        bases = [self.base(queue.decode()) for queue in queues]
        for some, home in [([base], "") for base in bases] + [([], own)] if self._spread else [(bases, own)]:
            await self.client.eval(script, 1, some[0] if some else own, round(seconds * 1000), home, *some)

    async def forget_lease(self, ref: Ref) -> None:
        base = self.base(ref.queue)
        await self.client.hdel(f"{base}{ref.id}", "heartbeat_at")
        await self.client.zrem(f"{base}unstuck:leases", ref.id)
        await self.client.delete(f"{base}{ref.id}:lock")

    def base(self, queue: str) -> str:
        """What all keys of a queue begin with."""
        return f"{self.prefix}:{{{queue}}}:" if self._spread else f"{self.prefix}:{queue}:"


_TIMES = {
    "job": ["created_at", "run_at", "rank", "started_at", "finished_at", "lease_until", "heartbeat_at"],
    "event": ["at"],
    "worker": ["started_at", "seen_at"],
    "token": ["free_at"],
    "bucket": ["closed_until"],
    "schedule": ["slot"],
    "queue": ["paused_at"],
}
_POSTGRES_TIMES = {
    "jobs": [
        "created_at",
        "next_earliest_run_at",
        "rank",
        "started_at",
        "finished_at",
        "lease_expires_at",
        "last_heartbeat_at",
    ],
    "job_events": ["at"],
    "workers": ["started_at", "seen_at"],
    "tokens": ["free_at"],
    "buckets": ["closed_until"],
    "schedules": ["slot"],
    "queues": ["paused_at"],
}
