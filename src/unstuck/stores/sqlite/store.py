"""SQLiteStore: the Store protocol on one file."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar

import apsw

from unstuck.protocol.availability import Clock
from unstuck.protocol.errors import StoreUnavailable
from unstuck.protocol.fleet import Fleet, WorkerInfo
from unstuck.protocol.job import Enqueued, Job, Json, NewJob, Ref
from unstuck.protocol.leases import Beat, HeartbeatAnswer, Reclaimed, Recovery, Share
from unstuck.protocol.limits import Grant
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.protocol.records import PAGE, Kept, Record
from unstuck.stores.shared import keeping
from unstuck.stores.shared.fork_guard import ForkGuard
from unstuck.stores.shared.statements import statements
from unstuck.stores.shared.values import at, milliseconds
from unstuck.stores.sqlite import checkup, lock, operate, rows, steps
from unstuck.stores.sqlite.connection import create
from unstuck.stores.sqlite.migrate import complete, migrate
from unstuck.stores.sqlite.reopening import ReopeningConnection
from unstuck.stores.sqlite.wakeup import SQLiteWakeup
from unstuck.stores.sqlite.writer import Step, Transaction, Writer

T = TypeVar("T")
MEMORY = ":memory:"


class SQLiteStore:
    """One thread does all writes, another all reads; neither blocks the event loop."""

    def __init__(self, path: str, *, all_events: bool = False) -> None:
        self._ephemeral = path == MEMORY
        self._path = path
        self._all_events = all_events
        self._sql = _statements()
        self._open = False

    async def __aenter__(self) -> Self:
        self._fork_guard = ForkGuard()
        if self._ephemeral:
            self._folder = tempfile.mkdtemp(prefix="unstuck-")
            weakref.finalize(self, _remove, self._folder, self._fork_guard)
            self._path = str(Path(self._folder) / "jobs.db")
        create(self._path)
        self._writer = await asyncio.to_thread(Writer, self._path, self._sql, ephemeral=self._ephemeral)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="unstuck-reader")
        try:
            self._reading = ReopeningConnection(self._path)
            self._wakeup = SQLiteWakeup(self._path, self._sql["work"], self._sql["heads"])
        except BaseException:
            _let_go(self._fork_guard, self._writer, self._reader)
            raise
        self._open = True
        # A program that runs one event loop after the other without closing the store must not accumulate threads.
        self._forgotten = weakref.finalize(
            asyncio.get_running_loop(), _let_go, self._fork_guard, self._writer, self._reader
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        if self._fork_guard.forked:
            return
        self._forgotten.detach()
        await self._writer.close()
        self._wakeup.close()
        await asyncio.get_running_loop().run_in_executor(self._reader, self._reading.close)
        self._reader.shutdown(wait=False)
        if self._ephemeral:
            _remove(self._folder, self._fork_guard)

    def twin(self) -> SQLiteStore:
        return SQLiteStore(self._path, all_events=self._all_events)

    async def migrate(self) -> None:
        if not await self._read(complete):
            await self._write(migrate)

    async def clock(self) -> Clock:
        return await self._read(lambda tx: Clock(at(tx.now)))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        return await self._write(lambda tx: steps.enqueue(tx, jobs, self._all_events))

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        if not queues or limit < 1:
            return []
        return await self._write(
            lambda tx: steps.lease(tx, queues, limit, owner, self._all_events), durable=False
        )

    async def heartbeat(self, worker: WorkerInfo, beats: Sequence[Beat]) -> HeartbeatAnswer:
        return await self._write(lambda tx: steps.heartbeat(tx, worker, beats), durable=False)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        if not outcomes:
            return []
        return await self._write(lambda tx: steps.settle(tx, outcomes, self._all_events))

    async def reclaim(self, recovery: Recovery) -> Reclaimed:
        return await self._write(lambda tx: steps.reclaim(tx, recovery), durable=False)

    async def take(self, bucket: str, wanted: int = 0, capacity: int = 0, interval: float = 0.0) -> Grant:
        if wanted < 1:
            return await self._read(lambda tx: steps.standing(tx, bucket))
        return await self._write(lambda tx: steps.take(tx, bucket, wanted, capacity, interval), durable=False)

    async def give_back(self, bucket: str, count: int = 0, stamp: int = 0, *, close_for: float = 0.0) -> None:
        if count > 0 or close_for > 0:
            await self._write(
                lambda tx: steps.give_back(tx, bucket, count, stamp, close_for), durable=close_for > 0
            )

    async def tick(
        self,
        schedule: str,
        slot: datetime | None,
        jobs: Sequence[NewJob],
        *,
        instead_of: datetime | None = None,
    ) -> bool:
        return await self._write(
            lambda tx: steps.tick(tx, schedule, slot, jobs, instead_of, self._all_events)
        )

    async def keep(self, kind: str, name: str, value: Json, version: int = 0) -> Kept:
        change = keeping.change(kind, name, value, version)
        return await self._write(lambda tx: steps.keep(tx, change))

    async def kept(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        keeping.check_listing(kind, after)
        if limit < 1:
            return []
        return await self._read(lambda tx: operate.kept(tx, kind, after, min(limit, PAGE)))

    async def forget(self, kind: str, older_than: float, limit: int = 1000) -> int:
        keeping.check_age(kind, older_than)
        if limit < 1:
            return 0
        facts = {"kind": kind, "age": milliseconds(older_than), "limit": limit}
        return await self._write(lambda tx: tx.change("forget", facts | {"now": tx.now}))

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        self._must_be_open()
        await self._wakeup.wait(queues, timeout)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.ids == () or limit < 1:
            return Page([], None)
        return await self._read(lambda tx: operate.find(tx, self._sql["find"], which, limit, cursor))

    async def count(self, ahead_of: Ref | None = None) -> list[Counts]:
        return await self._read(lambda tx: operate.count(tx, ahead_of))

    async def checkup(self, *, deep: bool = False) -> list[Finding]:
        own = await self._read(lambda tx: checkup.checkup(tx, self._path, deep=deep))
        return own + await asyncio.to_thread(lock.held, self._path)

    async def fleet(self) -> Fleet:
        return await self._read(operate.fleet)

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        return await self._read(lambda tx: operate.events(tx, after, job, limit))

    async def requeue(self, which: Filter, limit: int = 1000) -> int:
        if which.ids == ():
            return 0
        return await self._write(lambda tx: operate.requeue(tx, self._sql["requeue"], which, limit))

    async def delete(self, which: Filter, limit: int = 1000) -> int:
        if which.ids == ():
            return 0
        return await self._write(lambda tx: operate.delete(tx, self._sql["delete"], which, limit))

    async def cancel(self, refs: Sequence[Ref]) -> int:
        if not refs:
            return 0
        return await self._write(lambda tx: operate.cancel(tx, refs))

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        if not refs or (priority is None and run_at is None):
            return 0
        return await self._write(lambda tx: operate.edit(tx, refs, priority, run_at))

    async def pause(self, queue: str, why: str | None) -> bool:
        if why is None:
            return await self._write(lambda tx: operate.resume(tx, queue))
        await self._write(lambda tx: steps.pause(tx, queue, why))
        return True

    async def _write(self, step: Step[T], *, durable: bool = True) -> T:
        self._must_be_open()
        return await self._writer.run(step, durable=durable)

    async def _read(self, step: Callable[[Transaction], T]) -> T:
        self._must_be_open()
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._see, step)

    def _see(self, step: Callable[[Transaction], T]) -> T:
        def see(connection: apsw.Connection) -> T:
            connection.execute("BEGIN")  # one snapshot for all statements of a step
            try:
                return step(Transaction(connection, self._sql))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        return self._reading.use(see)

    def _must_be_open(self) -> None:
        if not self._open:
            raise StoreUnavailable(f"store file {self._path!r} is not open: use it inside 'async with'")
        self._fork_guard.check()


def _remove(folder: str, fork_guard: ForkGuard) -> None:
    if not fork_guard.forked:
        shutil.rmtree(folder, ignore_errors=True)


def _let_go(fork_guard: ForkGuard, writer: Writer, reader: ThreadPoolExecutor) -> None:
    if not fork_guard.forked:
        writer.abandon()
        reader.shutdown(wait=False)


def _statements() -> dict[str, str]:
    texts = statements("unstuck.stores.sqlite", "sql")
    # Statements with {matching} are completed for each call, with the fixed texts of filters.py.
    return {
        name: text if "{matching}" in text else text.replace("{job}", rows.JOB)
        for name, text in texts.items()
    }
