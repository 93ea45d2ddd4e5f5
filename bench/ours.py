"""Unstuck as a contestant: the app, its only task, and how jobs are enqueued."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from bench import marks, producer
from unstuck import Task, Unstuck, open_store
from unstuck.protocol.leases import Recovery

URL = os.environ["BENCH_URL"]
app = Unstuck(URL)


@app.task
async def work(n: int, s: str) -> None:  # noqa: ARG001 - a payload of the usual size
    marks.mark(n)


class Ours:
    def __init__(self, task: Task[..., None]) -> None:
        self.task = task

    async def open(self) -> None:
        await app.store()

    async def close(self) -> None:
        await app.__aexit__(None, None, None)

    async def one(self, number: int) -> None:
        await self.task.enqueue(n=number, s=marks.PAD)

    async def many(self, numbers: range) -> None:
        await app.enqueue_many([self.task.call(n=number, s=marks.PAD) for number in numbers])


async def set_up() -> None:
    async with open_store(URL) as store:
        await store.migrate()


async def reclaim(scans: int) -> None:
    """How long a reaper looks for what has lapsed, in milliseconds, each time."""
    took: list[float] = []
    async with open_store(URL) as store:
        for _ in range(scans):
            began = time.perf_counter()
            reclaimed = await store.reclaim(Recovery("bench", 30.0, 200))
            took.append((time.perf_counter() - began) * 1000)
            if reclaimed.jobs:
                raise RuntimeError("a lease ran out during the scan: nothing was to be found")
    print(json.dumps({"milliseconds": took}))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["setup"]:
            asyncio.run(set_up())
        case ["reclaim", scans]:
            asyncio.run(reclaim(int(scans)))
        case _:
            # Delayed for longer than the run takes, and more urgent than what is due.
            late = sys.argv[3:] == ["delayed"]
            producer.main(Ours(work.options(delay=7200, priority=9) if late else work))
