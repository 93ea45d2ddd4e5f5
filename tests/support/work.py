"""Work off what is due, or have a worker beside the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from unstuck import Unstuck, Worker


async def burst(app: Unstuck, **options: Any) -> None:
    """Run a worker in this process until nothing is due any more."""
    await Worker(app, burst=True, **options).run()


@asynccontextmanager
async def at_work(app: Unstuck, **options: Any) -> AsyncIterator[Worker]:
    """A worker in this process that runs for the length of a block, and ends at once after it."""
    worker = Worker(app, **options)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop(at_once=True)
        async with asyncio.timeout(20):
            await running
