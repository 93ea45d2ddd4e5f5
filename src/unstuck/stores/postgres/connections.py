"""Connections: those of a store. A few are kept; one that died while it was idle is noticed before it is used.

The driver's own pool would hide behind a timeout why the server does not answer, wait longer and longer between tries
while the server is away, and need background tasks that outlive an event loop nobody closed.
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

from unstuck.protocol.errors import StoreUnavailable
from unstuck.stores.postgres.address import Address
from unstuck.stores.postgres.driver_errors import translated_errors
from unstuck.stores.postgres.rows import Row
from unstuck.stores.shared.fork_guard import ForkGuard

MOST = 4  # connections of one store at a time; further callers wait
PATIENCE = 20.0  # seconds for an answer: nobody holds a lease much longer by default

STREAM = 2  # milliseconds to wait for the next piece of an answer that has begun to arrive


class Connection(AsyncConnection[Row]):
    """Reads an answer to its end once it has begun to arrive.

    The driver would return to the event loop for each piece, and wait there behind all jobs that are ready to run.
    """

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return await super().wait(_promptly(gen, self.pgconn.socket), *args, **kwargs)


def _promptly(gen: Any, line: int) -> Any:
    """Runs the driver's generator, and returns to the event loop only for data that does not arrive very soon."""
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


class Connections:
    """``async with connections.one() as connection``: in autocommit, for one step."""

    def __init__(self, address: Address) -> None:
        self.fork_guard = ForkGuard()
        self._address = address
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(MOST)
        self._open = True

    @asynccontextmanager
    async def one(self, patience: float | None = PATIENCE) -> AsyncIterator[Connection]:
        """A connection for one step. Errors of the driver are raised as ours. After ``patience`` seconds it is cut."""
        self.fork_guard.check()
        with translated_errors(self._address.schema):
            async with self._turn(patience):
                connection = self._alive() or await self.connect()
                cut = _cutting(connection, patience)
                try:
                    yield connection
                except BaseException:
                    # It must not be used again: the driver may take statements for prepared that the server skipped after an
                    # error or a cancellation. And a read-only session stays so, also if the server accepts writes again.
                    await connection.close()
                    raise
                finally:
                    if cut:
                        cut.cancel()
                    await self._keep(connection)

    @asynccontextmanager
    async def _turn(self, patience: float | None) -> AsyncIterator[None]:
        """Wait for a free connection, but no longer than for an answer: if the server hangs, none would ever be free."""
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
            self._address.conninfo, autocommit=True, prepare_threshold=None if self._address.pooled else 3
        )
        connection.prepared_max = 200
        return connection

    async def close(self) -> None:
        self._open = False
        while self._idle:
            await self._idle.pop().close()

    def abandon(self) -> None:
        """Close the connections without waiting, for a store whose event loop is gone."""
        self._open = False
        while self._idle:
            self._idle.pop().pgconn.finish()

    def _alive(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not _has_input(connection):
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
        self.fork_guard.check()


def _has_input(connection: Connection) -> bool:
    """Whether there is something to read although no query was sent: the server's last message, or the end."""
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _cutting(connection: Connection, patience: float | None) -> asyncio.TimerHandle | None:
    """Cut the connection after ``patience`` seconds. The driver would wait for ever for an answer to its cancel request."""
    if patience is None:
        return None

    def cut() -> None:
        with suppress(OSError), socket.socket(fileno=os.dup(connection.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)

    return asyncio.get_running_loop().call_later(patience, cut)
