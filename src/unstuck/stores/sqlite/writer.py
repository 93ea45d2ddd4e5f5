"""One thread, one connection: steps that arrive while a commit is under way share the next one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import apsw

from unstuck.errors import StoreUnavailable
from unstuck.stores.sqlite.connection import connect
from unstuck.stores.sqlite.plainly import speaking_plainly

T = TypeVar("T")
MOST_AT_ONCE = 64
Row = tuple[Any, ...]


class Transaction:
    """What a step sees of the database: named statements, and one time for all of them."""

    def __init__(self, connection: apsw.Connection, sql: dict[str, str]) -> None:
        self._connection = connection
        self._sql = sql
        self.now = time.time_ns() // 1_000_000

    def rows(self, name: str, **params: Any) -> list[Row]:
        return list(self._connection.execute(self._sql[name], params))

    def value(self, name: str, **params: Any) -> Any:
        """The one value that a statement answers with."""
        return self._connection.execute(self._sql[name], params).get

    def change(self, name: str, params: dict[str, Any] | Row) -> int:
        """Run one statement and say how many rows it changed."""
        self._connection.execute(self._sql[name], params)
        return self._connection.changes()

    def many(self, name: str, params: Iterable[Row]) -> int:
        """Run one statement for each of the parameter rows and say how many rows that changed."""
        before = self._connection.total_changes()
        self._connection.executemany(self._sql[name], params)
        return self._connection.total_changes() - before

    def trial(self, work: Callable[[], bool]) -> bool:
        """Keep what ``work`` changes only if it answers true; if not, it is as if it had not run."""
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

    A step that is not durable (a lease, a beat) does not wait for the disk: if the host loses power, its
    holder is gone as well. Whatever commits durably after it makes it durable, too.
    """

    def __init__(self, path: str, sql: dict[str, str], *, ephemeral: bool = False) -> None:
        self._path = path
        self._sql = sql
        self._ephemeral = ephemeral
        self._connection = connect(path)
        self._sync = ""
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
        """Carry out what was asked for, then let go of the file."""
        self._closed = True
        self._calls.put(None)
        # Without a thread to wait in: handlers may have taken all there are.
        while self._thread.is_alive():  # noqa: ASYNC110 - a thread that ends rings no bell
            await asyncio.sleep(0.001)

    def abandon(self) -> None:
        """Let go of the file without waiting, for a store whose event loop is gone."""
        self._closed = True
        self._calls.put(None)

    def _work(self) -> None:
        while self._serve():
            pass
        self._connection.close()

    def _serve(self) -> bool:
        calls = self._gather()
        if calls is not None:
            self._answer(calls, self._together(calls))
        return calls is not None

    def _gather(self) -> list[_Call] | None:
        """The next call and all that wait behind it; None to end."""
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
        """The answers (or exceptions) of the calls, all in one transaction if none of them fails."""
        try:
            return self._commit(calls)
        except Exception as error:  # noqa: BLE001 - handed to the caller it belongs to
            if len(calls) == 1:
                return [error]
            return [self._together([call])[0] for call in calls]

    def _commit(self, calls: Sequence[_Call]) -> list[Any]:
        with speaking_plainly(self._path):
            if self._connection.in_transaction:  # an earlier ROLLBACK failed
                self._connection.execute("ROLLBACK")
            self._set_sync("full" if any(call.durable for call in calls) else "normal")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                transaction = Transaction(self._connection, self._sql)
                answers = [call.step(transaction) for call in calls]
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            return answers

    def _set_sync(self, mode: str) -> None:
        if self._ephemeral:
            mode = "off"
        if mode != self._sync:
            self._connection.pragma("synchronous", mode)
            self._sync = mode

    def _answer(self, calls: Sequence[_Call], answers: Sequence[Any]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for call, answer in zip(calls, answers, strict=True):
            loops.setdefault(call.loop, []).append((call.answer, answer))
        for loop, pairs in loops.items():
            try:
                loop.call_soon_threadsafe(_deliver, pairs)
            except RuntimeError:  # the loop that asked is closed; nobody waits for the answer any more
                continue


def _deliver(pairs: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in pairs:
        if future.done():  # cancelled meanwhile
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
