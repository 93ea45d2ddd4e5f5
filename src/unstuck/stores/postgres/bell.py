"""Bell: wakes workers that wait. Losing a ring costs latency, never a job."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from psycopg.sql import SQL, Identifier

from unstuck.errors import UnstuckError
from unstuck.stores.postgres.lines import Connection, Lines
from unstuck.stores.postgres.place import Place
from unstuck.stores.postgres.plainly import speaking_plainly

log = logging.getLogger("unstuck.postgres")

QUIET = 0.01  # seconds between two rings for one queue: each one makes all commits of the server queue up
FLOOR, DEAF_FLOOR = 1.0, 0.1  # the longest pauses between looks, with and without a listener
AGAIN = 2.0  # seconds until a listener that was lost is tried again
LATE = 0.005  # the server's clock is read before its answer travels

Look = Callable[[Sequence[str]], Awaitable[tuple[bool, float | None]]]


class Throttle:
    """Which queues may be rung for. Those in between are found by the looks that follow every ring."""

    def __init__(self) -> None:
        self._rung: dict[str, float] = {}

    def ring(self, queues: Iterable[str]) -> list[str]:
        now = time.monotonic()
        due = [queue for queue in dict.fromkeys(queues) if now - self._rung.get(queue, -1.0) >= QUIET]
        self._rung |= dict.fromkeys(due, now)
        return due


class Bell:
    """``wait`` looks, then listens and looks again, at first soon and then ever less often."""

    def __init__(self, place: Place, lines: Lines, look: Look) -> None:
        self._place = place
        self._lines = lines
        self._look = look
        self._waiting: dict[asyncio.Event, frozenset[str]] = {}
        self._listener: asyncio.Task[None] | None = None
        self._hears = asyncio.Event()
        self._connection: Connection | None = None

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when a job of the queues is due, or after ``timeout``."""
        rung = asyncio.Event()
        self._waiting[rung] = frozenset(queues)
        try:
            await self._listen(timeout)
            await self._watch(queues, rung, time.monotonic() + timeout)
        finally:
            del self._waiting[rung]

    async def _watch(self, queues: Sequence[str], rung: asyncio.Event, end: float) -> None:
        pause = QUIET
        while (left := end - time.monotonic()) > 0:
            ready, due = await self._look(queues)
            if ready or (due is not None and due <= 0):
                return
            longest = FLOOR if self._hears.is_set() else DEAF_FLOOR
            pauses = (pause, longest, left, left if due is None else due + LATE)
            with suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), min(pauses))
                return
            pause *= 2

    async def _listen(self, timeout: float) -> None:
        """Have a listener before the first look, or what is enqueued between the two would be missed."""
        if self._place.pooled:
            return
        if self._listener is None:
            self._listener = asyncio.create_task(self._live())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hears.wait(), min(timeout, 1.0))

    async def _live(self) -> None:
        while True:
            try:
                with speaking_plainly(self._place.schema):
                    await self._hear()
            except UnstuckError as error:
                log.warning("cannot listen for new jobs, looking for them meanwhile: %s", error)
            finally:
                self._hears.clear()
            await asyncio.sleep(AGAIN)

    async def _hear(self) -> None:
        self._connection = connection = await self._lines.connect()
        try:
            await connection.execute(SQL("LISTEN {}").format(Identifier(self._place.channel)))
            self._hears.set()
            async for notice in connection.notifies():
                for rung, queues in self._waiting.items():
                    if notice.payload in queues:
                        rung.set()
        finally:
            connection.pgconn.finish()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)

    def abandon(self) -> None:
        if self._connection is not None:
            self._connection.pgconn.finish()
