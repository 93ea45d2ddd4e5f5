"""Ending: how background tasks are ended, and how an event is waited for, so that no cancellation is lost.

``asyncio.wait_for`` of Python 3.11 drops a cancellation that arrives in the moment in which its own wait is over
(python/cpython#86296, fixed in 3.12), and libraries that use it pass that on: redis-py 8.1, its newest release,
sends every command through it. So a task that was cancelled once may go on for ever.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

log = logging.getLogger("unstuck.worker")

PATIENCE = 5.0  # seconds for background tasks to end
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0  # seconds between two cancellations of the same task


async def end(tasks: Iterable[asyncio.Task[Any] | None], seconds: float = PATIENCE) -> int:
    """Cancel tasks again and again until they have ended; returns how many have not after so many seconds."""
    given = [task for task in tasks if task is not None]
    running = {task for task in given if not task.done()}
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
    while running and (left := deadline - time.monotonic()) > 0:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)
    for task in given:
        if task in running:
            log.error(
                "%s was cancelled and has not ended within %g s: going on without it", _name(task), seconds
            )
        elif not task.cancelled():
            task.exception()  # asyncio logs those that nobody asked for
    return len(running)


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Whether an event comes within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def _name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", task.get_name())
