"""Writer: one thread with one connection. Steps that arrive during a commit share the next one."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import apsw

from unstuck.protocol.errors import StoreUnavailable
from unstuck.stores.sqlite.reopening import ReopeningConnection

T = TypeVar("T")
MOST_AT_ONCE = 64
LAST_WORD = 1.0  # seconds that calls may still wait for another process when the store is closed
Row = tuple[Any, ...]


class Transaction:
    """How a step uses the database: named statements, and one time for all of them."""

    def __init__(self, connection: apsw.Connection, sql: dict[str, str]) -> None:
        self._connection = connection
        self._sql = sql
        self.now = time.time_ns() // 1_000_000

    def rows(self, name: str, **params: Any) -> list[Row]:
        return list(self._connection.execute(self._sql[name], params))

    def each(self, name: str, **params: Any) -> Iterator[Row]:
        """Rows that are read one by one, as far as they are needed."""
        return iter(self._connection.execute(self._sql[name], params))

    def value(self, name: str, **params: Any) -> Any:
        """The one value that a statement returns."""
        return self._connection.execute(self._sql[name], params).get

    def change(self, name: str, params: dict[str, Any] | Row) -> int:
        """Run one statement; returns how many rows it changed."""
        self._connection.execute(self._sql[name], params)
        return self._connection.changes()

    def many(self, name: str, params: Iterable[Row]) -> int:
        """Run one statement for each of the parameter rows; returns how many rows that changed."""
        before = self._connection.total_changes()
        self._connection.executemany(self._sql[name], params)
        return self._connection.total_changes() - before

    def trial(self, work: Callable[[], bool]) -> bool:
        """Run ``work`` and undo its changes unless it returns true."""
        self._connection.execute("SAVEPOINT trial")
        keep = work()
        if not keep:
            self._connection.execute("ROLLBACK TO trial")
        self._connection.execute("RELEASE trial")
        return keep

    def text(self, sql: str, **params: Any) -> list[Row]:
        """Run a statement that was completed with a condition of :mod:`filters`."""
        return list(self._connection.execute(sql, params))


Step = Callable[[Transaction], T]


class _Call(NamedTuple):
    step: Step[Any]
    durable: bool
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]


class Writer:
    """Runs steps one after the other in ``BEGIN IMMEDIATE`` transactions.

    A step that is not durable (a lease, a heartbeat) does not wait for the disk: if the host loses power, its
    holder is gone as well. The next durable commit makes it durable, too.
    """

    def __init__(self, path: str, sql: dict[str, str], *, ephemeral: bool = False) -> None:
        self._path = path
        self._sql = sql
        self._ephemeral = ephemeral
        self._asked: Sequence[_Call] = ()  # the calls that the current transaction answers
        self._has_lock = False
        self._until = math.inf  # the time from which nobody waits for an answer any more
        self.reopening = ReopeningConnection(path, self._prepare, self._deserted)
        self.reopening.use(lambda _: None)  # reports now what is wrong with the file
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="unstuck-writer", daemon=True)
        self._thread.start()

    async def run(self, step: Step[T], *, durable: bool = True) -> T:
        if self._closed:
            raise StoreUnavailable(f"store file {self._path!r} is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._calls.put(_Call(step, durable, loop, answer))
        return await answer

    async def close(self) -> None:
        """Answer the calls that wait, unless another process keeps the lock, then close the file."""
        self.abandon()
        # Not in a thread of the pool: handlers may occupy all of them.
        while self._thread.is_alive():  # noqa: ASYNC110 - a thread that ends notifies nobody
            await asyncio.sleep(0.001)

    def abandon(self) -> None:
        """Have the file closed without waiting for it, for a store whose event loop is gone."""
        self._closed = True
        self._until = time.monotonic() + LAST_WORD
        self._calls.put(None)

    def _deserted(self) -> bool:
        return time.monotonic() > self._until or (
            len(self._asked) > 0 and all(call.answer.cancelled() for call in self._asked)
        )

    def _work(self) -> None:
        while self._serve():
            pass
        self.reopening.close()

    def _serve(self) -> bool:
        calls = self._gather()
        if calls is not None:
            self._answer(calls, self._together(calls))
        return calls is not None

    def _gather(self) -> list[_Call] | None:
        """The next call and all that wait after it; None to end."""
        first = self._calls.get()
        if first is None:
            return None
        calls = [first]
        try:
            while len(calls) < MOST_AT_ONCE:
                call = self._calls.get_nowait()
                if call is None:
                    self._calls.put(None)
                    break
                calls.append(call)
        except Empty:
            pass
        return calls

    def _together(self, calls: Sequence[_Call]) -> list[Any]:
        """The answers (or exceptions) to the calls, all in one transaction if none of them fails."""
        try:
            return self._commit(calls)
        except Exception as error:  # noqa: BLE001 - passed to the caller it belongs to
            if len(calls) == 1 or not self._has_lock:  # without the lock none of them would succeed alone
                return [error] * len(calls)
            return [self._together([call])[0] for call in calls]

    def _commit(self, calls: Sequence[_Call]) -> list[Any]:
        self._asked, self._has_lock = calls, False
        try:
            return self.reopening.use(lambda connection: self._commit_on(connection, calls))
        finally:
            self._asked = ()  # a call refers to its event loop, which may be gone before the next call

    def _commit_on(self, connection: apsw.Connection, calls: Sequence[_Call]) -> list[Any]:
        if connection.in_transaction:  # an earlier ROLLBACK failed
            connection.execute("ROLLBACK")
        self._set_sync(connection, "full" if any(call.durable for call in calls) else "normal")
        connection.execute("BEGIN IMMEDIATE")
        self._has_lock = True
        try:
            transaction = Transaction(connection, self._sql)
            answers = [call.step(transaction) for call in calls]
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return answers

    def _prepare(self, _: apsw.Connection) -> None:
        self._sync = ""  # the mode of a new connection is not known

    def _set_sync(self, connection: apsw.Connection, mode: str) -> None:
        if self._ephemeral:
            mode = "off"
        if mode != self._sync:
            connection.pragma("synchronous", mode)
            self._sync = mode

    def _answer(self, calls: Sequence[_Call], answers: Sequence[Any]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for call, answer in zip(calls, answers, strict=True):
            loops.setdefault(call.loop, []).append((call.answer, answer))
        for loop, pairs in loops.items():
            try:
                loop.call_soon_threadsafe(_deliver, pairs)
            except RuntimeError:  # the caller's loop is closed; nobody waits for the answer any more
                continue


def _deliver(pairs: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in pairs:
        if future.done():  # cancelled meanwhile
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
