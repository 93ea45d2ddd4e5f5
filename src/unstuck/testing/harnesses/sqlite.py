"""The harness of the SQLite store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import apsw

from unstuck.protocol.job import Ref
from unstuck.testing.harnesses.harness import Clients

_TIMES = {
    "job": [
        "created_at",
        "run_at",
        "rank",
        "started_at",
        "finished_at",
        "lease_until",
        "heartbeat_at",
        "expires_at",
    ],
    "event": ["at"],
    "worker": ["started_at", "seen_at"],
    "token": ["free_at"],
    "bucket": ["closed_until"],
    "schedule": ["slot"],
    "queue": ["paused_at"],
    "record": ["updated_at"],
    "spacing": ["until"],
}


class SQLiteHarness(Clients):
    """``async with SQLiteHarness(folder) as harness``"""

    def __init__(self, folder: Path, options: str = "") -> None:
        self._file = str(folder / "jobs.db")
        super().__init__(f"sqlite:///{self._file}{options}")

    async def __aenter__(self) -> Self:
        self.store = await self.another()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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
