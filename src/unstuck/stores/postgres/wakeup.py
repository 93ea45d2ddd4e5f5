"""PostgresWakeup: wakes workers that wait. Losing a notification costs latency, never a job."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from psycopg.sql import SQL, Identifier

from unstuck.background import end, happens
from unstuck.protocol.errors import UnstuckError
from unstuck.stores.postgres.address import Address
from unstuck.stores.postgres.connections import Connection, Connections
from unstuck.stores.postgres.driver_errors import translated_errors

log = logging.getLogger("unstuck.postgres")

QUIET = 0.01  # seconds between two notifications for a queue: each makes all commits of the server wait
FLOOR, DEAF_FLOOR = 1.0, 0.1  # the longest pauses between looks, with and without a listener
AGAIN = 2.0  # seconds until a lost listener connects again
LATE = 0.005  # the server's clock is read before its answer travels

Look = Callable[[Sequence[str]], Awaitable[tuple[bool, float | None]]]


class Throttle:
    """Which queues may be notified. Jobs in between are found by the looks that follow every notification."""

    def __init__(self) -> None:
        self._notified: dict[str, float] = {}

    def due(self, queues: Iterable[str]) -> list[str]:
        now = time.monotonic()
        due = [queue for queue in dict.fromkeys(queues) if now - self._notified.get(queue, -1.0) >= QUIET]
        self._notified |= dict.fromkeys(due, now)
        return due


class PostgresWakeup:
    """``wait`` looks, then listens and looks again, at first soon and then less and less often."""

    def __init__(self, address: Address, connections: Connections, look: Look) -> None:
        self._address = address
        self._connections = connections
        self._look = look
        self._waiting: dict[asyncio.Event, frozenset[str]] = {}
        self._listener: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self._connection: Connection | None = None

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when a job of the queues is due, or after ``timeout``."""
        notified = asyncio.Event()
        self._waiting[notified] = frozenset(queues)
        try:
            await self._listen(timeout)
            await self._watch(queues, notified, time.monotonic() + timeout)
        finally:
            del self._waiting[notified]

    async def _watch(self, queues: Sequence[str], notified: asyncio.Event, end: float) -> None:
        pause = QUIET
        while (left := end - time.monotonic()) > 0:
            ready, due = await self._look(queues)
            if ready or (due is not None and due <= 0):
                return
            longest = FLOOR if self._listening.is_set() else DEAF_FLOOR
            pauses = (pause, longest, left, left if due is None else due + LATE)
            if await happens(notified, min(pauses)):
                return
            pause *= 2

    async def _listen(self, timeout: float) -> None:
        """Start to listen before the first look, or a job that is enqueued between the two would be missed."""
        if self._address.pooled:
            return
        if self._listener is None:
            self._listener = asyncio.create_task(self._live())
            await happens(self._listening, min(timeout, 1.0))

    async def _live(self) -> None:
        while True:
            try:
                with translated_errors(self._address.schema):
                    await self._receive()
            except UnstuckError as error:
                log.warning("cannot listen for new jobs, looking for them meanwhile: %s", error)
            finally:
                self._listening.clear()
            await asyncio.sleep(AGAIN)

    async def _receive(self) -> None:
        self._connection = connection = await self._connections.connect()
        try:
            await connection.execute(SQL("LISTEN {}").format(Identifier(self._address.channel)))
            self._listening.set()
            async for notice in connection.notifies():
                for notified, queues in self._waiting.items():
                    if notice.payload in queues:
                        notified.set()
        finally:
            connection.pgconn.finish()

    async def close(self) -> None:
        await end([self._listener])

    def abandon(self) -> None:
        if self._connection is not None:
            self._connection.pgconn.finish()
