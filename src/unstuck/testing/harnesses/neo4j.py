"""The harness of the Neo4j store."""

from __future__ import annotations

from typing import Any, Self
from urllib.parse import unquote, urlsplit

from unstuck.protocol.job import Ref
from unstuck.testing.harnesses.harness import Clients, with_option


class Neo4jHarness(Clients):
    """``async with Neo4jHarness("neo4j://…")``: nodes with labels of its own in that database, removed at both ends.

    The label stays the same, because constraints and indexes take longer to make than most tests.
    """

    def __init__(self, url: str, options: str = "", *, label: str = "Harness") -> None:
        self.label = label
        super().__init__(with_option(url, f"label={label}{options}"))

    async def __aenter__(self) -> Self:
        from neo4j import AsyncGraphDatabase

        parts = urlsplit(self.url)
        auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        self._database = parts.path.removeprefix("/")
        self.driver: Any = AsyncGraphDatabase.driver(
            f"{parts.scheme}://{parts.hostname}:{parts.port}", auth=auth, notifications_min_severity="OFF"
        )
        await self._wipe()
        self.store = await self.another()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        await self._wipe()
        await self.driver.close()

    async def age(self, seconds: float) -> None:
        """In one statement, so that hardly any real time passes meanwhile."""
        self.aged += seconds
        changes = [
            f"CALL () {{ MATCH (n:{self.label}{kind}) SET {', '.join(f'n.{name} = n.{name} - $by' for name in names)} "
            f"RETURN count(*) AS n{kind} }}"
            for kind, names in _TIMES.items()
        ]
        await self.rows(" ".join([*changes, "RETURN 1"]), by=round(seconds * 1000))

    async def forget_lease(self, ref: Ref) -> None:
        await self.rows(
            f"MATCH (n:{self.label} {{queue: $queue, job_id: $id}}) SET n.lock_until = null, n.heartbeat_at = null",
            queue=ref.queue,
            id=ref.id,
        )

    async def rows(self, text: str, **params: Any) -> list[tuple[Any, ...]]:
        """Run a statement in the database, past the store."""
        async with self.driver.session(database=self._database) as session:
            return [tuple(row.values()) async for row in await session.run(text, params)]

    async def _wipe(self) -> None:
        """All but the node that has the version of the schema."""
        kinds = "|".join(f"{self.label}{kind}" for kind in (*_TIMES, "Counter", "RecordKind"))
        await self.rows(f"MATCH (n:{kinds}) CALL (n) {{ DETACH DELETE n }} IN TRANSACTIONS OF 10000 ROWS")


_TIMES = {
    "": [
        "created_at",
        "run_at",
        "rank",
        "due_at",
        "started_at",
        "processed_at",
        "lock_until",
        "heartbeat_at",
        "expires_at",
    ],
    "Event": ["at"],
    "Worker": ["started_at", "seen_at"],
    "Grant": ["free_at"],
    "Bucket": ["closed_until"],
    "Schedule": ["slot"],
    "Queue": ["paused_at", "halted_at"],
    "Record": ["updated_at"],
    "Spacing": ["until"],
}
