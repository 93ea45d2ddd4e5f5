"""BullMQ on a test's server: what it enqueues, runs, controls and sees."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.node import Node
from support.redis import Redis
from support.waiting import until_async
from unstuck.protocol.job import NewJob
from unstuck.testing import RedisHarness

QUEUE = "mail"


class Bull:
    """BullMQ on the test's server."""

    def __init__(self, version: str, server: Redis, harness: RedisHarness, log: Path) -> None:
        self._node, self._where, self._log = Node(version), (str(server.port), harness.prefix, QUEUE), log
        self._client = harness.client

    async def add(self, *jobs: tuple[str, Any, dict[str, Any]]) -> list[str]:
        said = [{"task": task, "data": data, "opts": opts} for task, data, opts in jobs]
        ids: list[str] = await asyncio.to_thread(self._node, "produce", *self._where, said)
        return ids

    async def flow(self, *children: tuple[str, dict[str, Any]]) -> list[str]:
        said = [{"task": task, "opts": opts} for task, opts in children]
        ids: list[str] = await asyncio.to_thread(self._node, "flow", *self._where, said)
        return ids

    async def tree(self, flow: dict[str, Any]) -> dict[str, str]:
        """Add a flow as BullMQ's producer takes it; answers the ids by the jobs' names."""
        ids: dict[str, str] = await asyncio.to_thread(self._node, "tree", *self._where, flow)
        return ids

    async def look(self) -> Any:
        return await asyncio.to_thread(self._node, "look", *self._where)

    async def promote(self, id_: str) -> None:
        """Have a delayed job run now."""
        await asyncio.to_thread(self._node, "promote", *self._where, id_)

    async def remove(self, way: str, *ids: str) -> None:
        """Have jobs removed: "remove" those with these ids, "clean" the finished ones, or "obliterate" the queue."""
        await asyncio.to_thread(self._node, "removed", *self._where, way, *ids)

    async def log(self, id_: str, line: str) -> None:
        await self.control("addJobLog", id_, line)

    async def board(self) -> Any:
        """What the dashboard lists."""
        return await asyncio.to_thread(self._node, "board", *self._where)

    async def control(self, method: str, *args: object) -> Any:
        said = (json.dumps(arg) for arg in args)
        return await asyncio.to_thread(self._node, "control", *self._where, method, *said)

    async def die_at_work(self, count: int) -> None:
        """A worker of theirs that is killed when so many jobs run."""
        with self._node.start(self._log, "work", *self._where, 10**6, 60_000) as child:
            running = f"{self._where[1]}:{QUEUE}:active"

            async def busy() -> bool:
                return bool(await self._client.llen(running) >= count)

            await until_async(busy, 30, f"{count} jobs to run", self._log)
            child.close()

    @asynccontextmanager
    async def at_work(self, *, slow: int) -> AsyncIterator[None]:
        """Beside a worker of theirs whose jobs take so many milliseconds. It is killed in the end."""
        with self._node.start(self._log, "work", *self._where, 10**6, slow) as child:
            await child.until_line_async("ready", 30)
            yield

    async def work(self, count: int) -> None:
        """A worker of theirs until so many jobs have ended."""
        with self._node.start(self._log, "work", *self._where, count) as child:
            await until_async(lambda: child.exit_code is not None, 30, f"{count} jobs to end", self._log)
            assert child.exit_code == 0


def ours(task: str, **facts: Any) -> NewJob:
    return NewJob(queue=QUEUE, task=task, id=f"{task}-1", payload={"n": 1}, backoff=(0.1, 0.2), **facts)
