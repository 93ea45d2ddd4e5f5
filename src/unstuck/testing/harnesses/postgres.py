"""The harness of the PostgreSQL store."""

from __future__ import annotations

import secrets
from typing import Any, Self

from unstuck.protocol.job import Ref
from unstuck.testing.harnesses.harness import Clients, with_option

_TIMES = {
    "jobs": [
        "created_at",
        "next_earliest_run_at",
        "rank",
        "started_at",
        "finished_at",
        "lease_expires_at",
        "last_heartbeat_at",
        "expires_at",
    ],
    "job_events": ["at"],
    "workers": ["started_at", "seen_at"],
    "tokens": ["free_at"],
    "buckets": ["closed_until"],
    "schedules": ["slot"],
    "queues": ["paused_at"],
    "records": ["updated_at"],
    "spacing": ["until"],
}


class PostgresHarness(Clients):
    """``async with PostgresHarness("postgresql://…")``: a new schema in that database, dropped at the end."""

    def __init__(self, url: str, options: str = "") -> None:
        self.schema = f"harness_{secrets.token_hex(6)}"
        self._database = url
        super().__init__(with_option(url, f"schema={self.schema}{options}"))

    async def __aenter__(self) -> Self:
        from psycopg import AsyncConnection

        self._connection = await AsyncConnection.connect(
            self._database, autocommit=True, prepare_threshold=None
        )
        self.store = await self.another()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        await self.rows("DROP SCHEMA {schema} CASCADE")
        await self._connection.close()

    async def age(self, seconds: float) -> None:
        """In one statement, so that hardly any real time passes meanwhile."""
        self.aged += seconds
        by = f"make_interval(secs => {seconds})"
        changes = {
            table: ", ".join(f"{name} = {name} - {by}" for name in columns)
            for table, columns in _TIMES.items()
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
