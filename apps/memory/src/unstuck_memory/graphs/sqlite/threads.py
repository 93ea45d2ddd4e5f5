"""The threads that use the file: one writes, a few read. Neither blocks the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, TypeVar

import apsw

from unstuck_memory.errors import GraphUnavailable
from unstuck_memory.graphs.sqlite.connection import connect, disconnect, translated_errors

T = TypeVar("T")
Row = tuple[Any, ...]
READERS = 3


class Transaction:
    """How a step uses the database: named statements, and one time for all of them."""

    def __init__(self, connection: apsw.Connection, sql: dict[str, str]) -> None:
        self.connection = connection
        self._sql = sql
        self.now = time.time_ns() // 1_000_000

    def rows(self, name: str, /, **params: Any) -> list[Row]:
        return list(self.connection.execute(self._sql[name], params))

    def value(self, name: str, /, **params: Any) -> Any:
        """The one value that a statement returns; None without a row."""
        for row in self.connection.execute(self._sql[name], params):
            return row[0]
        return None

    def change(self, name: str, /, **params: Any) -> int:
        """Run one statement; returns how many rows it changed."""
        self.connection.execute(self._sql[name], params)
        return self.connection.changes()

    def many(self, name: str, params: Iterable[dict[str, Any]]) -> None:
        """Run one statement for each of the parameters."""
        self.connection.executemany(self._sql[name], params)

    def each(self, name: str, params: Iterable[dict[str, Any]], /) -> Iterator[Row]:
        """The rows of one statement for each of the parameters."""
        return iter(self.connection.executemany(self._sql[name], params))

    def trial(self, work: Callable[[], T]) -> T:
        """Run ``work`` and undo its changes."""
        self.connection.execute("SAVEPOINT trial")
        try:
            return work()
        finally:
            self.connection.execute("ROLLBACK TO trial")
            self.connection.execute("RELEASE trial")


Step = Callable[[Transaction], T]


class Snapshot:
    """A connection of its own, in one transaction."""

    def __init__(self, path: str, sql: dict[str, str], threads: ThreadPoolExecutor) -> None:
        self._path = path
        self._sql = sql
        self._threads = threads
        self._in_use = threading.Lock()  # a thread may still read when the caller has gone
        self._connection: apsw.Connection | None = None
        self._closed = False

    async def rows(self, name: str, page: int, **params: Any) -> AsyncIterator[Row]:
        """The rows of a statement, of which so many are in memory at a time."""
        cursor: apsw.Cursor | None = None

        def read() -> list[Row]:
            nonlocal cursor
            with translated_errors(self._path), self._in_use:
                if self._closed:
                    return []
                cursor = cursor or self._begun().execute(self._sql[name], params)
                return list(islice(cursor, page))

        run = asyncio.get_running_loop().run_in_executor
        while rows := await run(self._threads, read):
            for row in rows:
                yield row

    def close(self) -> None:
        with self._in_use:
            self._closed = True
            if self._connection is not None:
                disconnect(self._connection, self._path)

    def _begun(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = connect(self._path)
            self._connection.execute("BEGIN")
        return self._connection


class Threads:
    """Runs steps in transactions: those that write one after the other, in the order in which they came."""

    def __init__(self, path: str, sql: dict[str, str]) -> None:
        self._path = path
        self._sql = sql
        self._process = os.getpid()
        self._closed = False
        self._idle: deque[apsw.Connection] = deque()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="graph-writer")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="graph-reader")
        self._writing: apsw.Connection | None = None

    async def open(self) -> None:
        """Open the connection that writes, which finds out what is wrong with the file."""

        def connected() -> None:
            self._writing = connect(self._path)
            self._file = self._inode()

        await asyncio.get_running_loop().run_in_executor(self._writer, connected)

    async def close(self) -> None:
        """End what is under way, then close the file."""
        if os.getpid() != self._process:
            return
        self._closed = True
        await asyncio.to_thread(self._end)

    async def write(self, step: Step[T]) -> T:
        self._must_be_open()
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._write, step)

    async def read(self, step: Step[T]) -> T:
        self._must_be_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, step)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        """Reads that see the graph as it is at the first of them, however long they take."""
        self._must_be_open()
        snapshot = Snapshot(self._path, self._sql, self._readers)
        try:
            yield snapshot
        finally:
            snapshot.close()

    def _write(self, step: Step[T]) -> T:
        connection = self._writing
        assert connection is not None
        self._must_be_the_same()
        with translated_errors(self._path):
            if connection.in_transaction:  # an earlier ROLLBACK failed
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            try:
                answer = step(Transaction(connection, self._sql))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return answer

    def _read(self, step: Step[T]) -> T:
        self._must_be_the_same()
        with translated_errors(self._path):
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = connect(self._path)
            try:
                connection.execute("BEGIN")  # one snapshot for all statements of a step
                try:
                    return step(Transaction(connection, self._sql))
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            finally:
                self._idle.append(connection)

    def _end(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        for connection in (*self._idle, self._writing):
            if connection is not None:
                disconnect(connection, self._path)

    def _must_be_the_same(self) -> None:
        """What is written to a file that was deleted or replaced is lost."""
        if self._inode() != self._file:
            raise GraphUnavailable(
                f"graph file {self._path!r} was deleted or replaced while it was in use: open the graph again"
            )

    def _inode(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - for every write
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _must_be_open(self) -> None:
        if self._closed:
            raise GraphUnavailable(f"graph file {self._path!r} is closed: use the graph inside 'async with'")
        if os.getpid() != self._process:
            raise GraphUnavailable(
                f"graph file {self._path!r} was opened by process {self._process}, of which this process ({os.getpid()}) is "
                "a fork: open the graph after the fork"
            )
