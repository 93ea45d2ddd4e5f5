"""SQLiteStore: the Store protocol on one file."""

from __future__ import annotations

import asyncio
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar

from unstuck.errors import StoreUnavailable
from unstuck.model import Beat, Event, Filter, Job, NewJob, Outcome, Ref, Settled, Worker
from unstuck.store import GRACE, Blind, Clock, Counts, Enqueued, Finding, Page, Pulse, Reclaimed, Share
from unstuck.stores.sqlite import checkup, lock, operate, rows, steps
from unstuck.stores.sqlite.bell import Bell
from unstuck.stores.sqlite.connection import connect, create
from unstuck.stores.sqlite.migrate import complete, migrate
from unstuck.stores.sqlite.plainly import speaking_plainly
from unstuck.stores.sqlite.writer import Step, Transaction, Writer
from unstuck.stores.statements import statements
from unstuck.stores.values import at, milliseconds
from unstuck.tokens import Bucket, Grant

T = TypeVar("T")
MEMORY = ":memory:"


class SQLiteStore:
    """All writes go through one thread, all reads through another; neither holds up the event loop."""

    def __init__(self, path: str, *, all_events: bool = False) -> None:
        self._ephemeral = path == MEMORY
        self._path = path
        self._all_events = all_events
        self._sql = _statements()
        self._open = False

    async def __aenter__(self) -> Self:
        if self._ephemeral:
            self._folder = tempfile.TemporaryDirectory(prefix="unstuck-")
            self._path = str(Path(self._folder.name) / "jobs.db")
        create(self._path)
        self._writer = await asyncio.to_thread(Writer, self._path, self._sql, ephemeral=self._ephemeral)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="unstuck-reader")
        try:
            self._reading = connect(self._path)
            self._bell = Bell(self._path, self._sql["work"])
        except BaseException:
            _let_go(self._writer, self._reader)
            raise
        self._open = True
        # Whoever runs one loop after the other without closing must not pile up threads.
        weakref.finalize(asyncio.get_running_loop(), _let_go, self._writer, self._reader)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        await self._writer.close()
        self._bell.close()
        await asyncio.get_running_loop().run_in_executor(self._reader, self._reading.close)
        self._reader.shutdown(wait=False)
        if self._ephemeral:
            self._folder.cleanup()

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

    async def heartbeat(self, worker: Worker, beats: Sequence[Beat]) -> Pulse:
        return await self._write(lambda tx: steps.heartbeat(tx, worker, beats), durable=False)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        if not outcomes:
            return []
        return await self._write(lambda tx: steps.settle(tx, outcomes, self._all_events))

    async def reclaim(
        self,
        queues: Sequence[str] | None,
        seconds: float,
        limit: int,
        owner: str,
        *,
        of: str | None = None,
        blind: Sequence[Blind] = (),
        grace: float = GRACE,
    ) -> Reclaimed:
        return await self._write(
            lambda tx: steps.reclaim(tx, queues, seconds, limit, owner, of, blind, grace), durable=False
        )

    async def take(self, bucket: str, wanted: int, capacity: int, interval: float) -> Grant:
        if wanted < 1:
            return Grant(0, 0.0)
        return await self._write(lambda tx: steps.take(tx, bucket, wanted, capacity, interval), durable=False)

    async def give_back(self, bucket: str, count: int, stamp: int) -> None:
        if count < 1:
            return
        params = {"bucket": bucket, "count": count, "stamp": stamp}
        await self._write(lambda tx: tx.change("give_back", params), durable=False)

    async def close(self, bucket: str, seconds: float) -> None:
        ms = milliseconds(seconds)
        await self._write(lambda tx: tx.change("close", {"bucket": bucket, "until": tx.now + ms}))

    async def bucket(self, name: str) -> Bucket:
        return await self._read(lambda tx: operate.bucket(tx, name))

    async def slot(self, schedule: str) -> datetime | None:
        found = await self._read(lambda tx: tx.rows("slot", schedule=schedule))
        return at(found[0][0]) if found else None

    async def slots(self) -> dict[str, datetime]:
        found = await self._read(lambda tx: tx.rows("slots"))
        return {name: at(slot) for name, slot in found}

    async def tick(self, schedule: str, slot: datetime, jobs: Sequence[NewJob]) -> bool:
        return await self._write(lambda tx: steps.tick(tx, schedule, slot, jobs, self._all_events))

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        self._must_be_open()
        await self._bell.wait(queues, timeout)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.ids == () or limit < 1:
            return Page([], None)
        return await self._read(lambda tx: operate.find(tx, self._sql["find"], which, limit, cursor))

    async def count(self) -> list[Counts]:
        return await self._read(operate.count)

    async def checkup(self) -> list[Finding]:
        own = await self._read(lambda tx: checkup.checkup(tx, self._path))
        return own + await asyncio.to_thread(lock.held, self._path)

    async def verify(self) -> list[str]:
        return await self._read(checkup.verify)

    async def workers(self) -> list[Worker]:
        return await self._read(operate.workers)

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

    async def place(self, ref: Ref) -> int:
        return await self._read(lambda tx: operate.place(tx, ref))

    async def pause(self, queue: str, why: str) -> None:
        await self._write(lambda tx: steps.pause(tx, queue, why))

    async def resume(self, queue: str) -> bool:
        return await self._write(lambda tx: operate.resume(tx, queue))

    async def _write(self, step: Step[T], *, durable: bool = True) -> T:
        self._must_be_open()
        return await self._writer.run(step, durable=durable)

    async def _read(self, step: Callable[[Transaction], T]) -> T:
        self._must_be_open()
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._see, step)

    def _see(self, step: Callable[[Transaction], T]) -> T:
        with speaking_plainly(self._path):
            self._reading.execute("BEGIN")  # one snapshot for all statements of a step
            try:
                return step(Transaction(self._reading, self._sql))
            finally:
                self._reading.execute("ROLLBACK")

    def _must_be_open(self) -> None:
        if not self._open:
            raise StoreUnavailable(f"store file {self._path!r} is not open: use it inside 'async with'")


def _let_go(writer: Writer, reader: ThreadPoolExecutor) -> None:
    writer.abandon()
    reader.shutdown(wait=False)


def _statements() -> dict[str, str]:
    texts = statements("unstuck.stores.sqlite", ".sql")
    # Those with a {matching} are completed per call, by the fixed texts of filters.py.
    return {
        name: text if "{matching}" in text else text.replace("{job}", rows.JOB)
        for name, text in texts.items()
    }
