"""Lines: the connections of a store. A few are kept; what died while it was idle is noticed before it is used.

A pool of the driver's would hide why nobody answers behind a timeout, wait ever longer between tries while the
server is away, and need tasks in the background that outlive an event loop nobody closed.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.waiting import READY_R, READY_W

from unstuck.errors import StoreUnavailable
from unstuck.stores.postgres.place import Place
from unstuck.stores.postgres.plainly import speaking_plainly
from unstuck.stores.postgres.rows import Row

MOST = 4  # connections of one store at a time; who asks for more waits
PATIENCE = 20.0  # seconds for an answer: nobody holds a lease much longer by default

STREAM = 2  # milliseconds for the next piece of an answer that has begun to come


class Connection(AsyncConnection[Row]):
    """Takes an answer that has begun to come in one go.

    The driver would go back to the event loop for each piece, behind all jobs that are ready to run there.
    """

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return await super().wait(_promptly(gen, self.pgconn.socket), *args, **kwargs)


def _promptly(gen: Any, line: int) -> Any:
    """The driver's own generator, but asked to wait only for what is not there and not about to come."""
    poll, waited = select.poll(), 0
    try:
        wanted = next(gen)
        while True:
            reading, writing = wanted & READY_R, wanted & READY_W
            poll.register(line, (select.POLLIN if reading else 0) | (select.POLLOUT if writing else 0))
            if found := poll.poll(waited):
                can_write = bool(found[0][1] & select.POLLOUT)
                ready = (READY_W if can_write else 0) | (READY_R if found[0][1] & ~select.POLLOUT else 0)
            else:
                ready = yield wanted
                waited = STREAM if ready else 0
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


class Lines:
    """``async with lines.one() as connection``: in autocommit, for one step."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(MOST)
        self._open = True

    @asynccontextmanager
    async def one(self, patience: float | None = PATIENCE) -> AsyncIterator[Connection]:
        """Driver's errors leave as ours. An answer that takes longer than ``patience`` does not come any more."""
        with speaking_plainly(self._place.schema):
            async with self._turn(patience):
                connection = self._alive() or await self.connect()
                cut = _cutting(connection, patience)
                try:
                    yield connection
                except BaseException:
                    # Not to be used again: the driver may think prepared what the server skipped behind an error, or behind
                    # what was given up, and a session that may only read stays so, whatever has become of the server since.
                    await connection.close()
                    raise
                finally:
                    if cut:
                        cut.cancel()
                    await self._keep(connection)

    @asynccontextmanager
    async def _turn(self, patience: float | None) -> AsyncIterator[None]:
        """Wait for room, but no longer than for an answer: behind a server that hangs there would be no end to it."""
        try:
            async with asyncio.timeout(patience):
                await self._room.acquire()
        except TimeoutError:
            raise StoreUnavailable(f"no connection came free within {patience:g} s") from None
        try:
            yield
        finally:
            self._room.release()

    async def connect(self) -> Connection:
        connection = await Connection.connect(
            self._place.conninfo, autocommit=True, prepare_threshold=None if self._place.pooled else 3
        )
        connection.prepared_max = 200
        return connection

    async def close(self) -> None:
        self._open = False
        while self._idle:
            await self._idle.pop().close()

    def abandon(self) -> None:
        """Let go of the connections without waiting, for a store whose event loop is gone."""
        self._open = False
        while self._idle:
            self._idle.pop().pgconn.finish()

    def _alive(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not _speaks(connection):
                return connection
            connection.pgconn.finish()
        return None

    async def _keep(self, connection: Connection) -> None:
        usable = not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE
        if usable and self._open:
            self._idle.append(connection)
        else:
            await connection.close()

    def must_be_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")


def _speaks(connection: Connection) -> bool:
    """Whether there is something to read although nobody has asked: a farewell, or the end."""
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _cutting(connection: Connection, patience: float | None) -> asyncio.TimerHandle | None:
    """Hang up after so long. The driver itself would wait for ever for an answer to its wish to cancel."""
    if patience is None:
        return None

    def cut() -> None:
        with suppress(OSError), socket.socket(fileno=os.dup(connection.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)

    return asyncio.get_running_loop().call_later(patience, cut)
