"""Waits for work by polling: Neo4j has no notifications."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

SOON, LATE = 0.01, 0.1  # seconds between polls, at first and after a while
SHORT = 0.002  # seconds: the server reads its clock before it sends the answer

Look = Callable[[Sequence[str]], Awaitable[tuple[bool, int | None]]]


async def wait(look: Look, queues: Sequence[str], timeout: float) -> None:
    """Return when a job of the queues is due, or after ``timeout``."""
    end = time.monotonic() + timeout
    pause = SOON
    while (left := end - time.monotonic()) > 0:
        ready, due = await look(queues)
        if ready or (due is not None and due <= 0):
            return
        await asyncio.sleep(min(pause, left, left if due is None else due / 1000 + SHORT))
        pause = min(2 * pause, LATE)
