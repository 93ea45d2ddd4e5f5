"""PostgresStore: the Store protocol on a PostgreSQL server."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from unstuck.errors import StoreUnavailable
from unstuck.model import Beat, Event, Filter, Job, NewJob, Outcome, Ref, Settled, Worker
from unstuck.store import GRACE, Blind, Clock, Counts, Enqueued, Finding, Page, Pulse, Reclaimed, Share
from unstuck.stores.postgres import checkup, join, leased, operate, rows, steps
from unstuck.stores.postgres.bell import Bell, Throttle
from unstuck.stores.postgres.desk import Desk
from unstuck.stores.postgres.lines import PATIENCE, Lines
from unstuck.stores.postgres.migrate import migrate, refuse_newer
from unstuck.stores.postgres.place import Place
from unstuck.stores.postgres.plainly import AddressTaken
from unstuck.stores.postgres.rows import Query, Row, json_text
from unstuck.stores.postgres.steps import Step
from unstuck.stores.postgres.texts import texts
from unstuck.stores.settling import plain
from unstuck.stores.telling import UNREADABLE
from unstuck.tokens import Bucket, Grant

log = logging.getLogger("unstuck.postgres")

LOOK_AHEAD = 60.0  # seconds between looks for beats in the future, because the server's clock was put back
ENQUEUED_A_SECOND = 1000  # at the least: so much longer may many jobs take


class PostgresStore:
    """Every operation is one statement, or a few that travel and commit together."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._sql = texts(place)
        self._throttle = Throttle()
        self._met: set[str] = set()
        self._looked_ahead = -LOOK_AHEAD
        self._open = False

    async def __aenter__(self) -> Self:
        self._lines = lines = Lines(self._place)
        self._desk = Desk(lines, {name: text.encode() for name, text in self._sql.items()})
        self._bell = bell = Bell(self._place, lines, self._look)
        self._open = True
        # Whoever runs one loop after the other without closing must not pile up connections.
        weakref.finalize(asyncio.get_running_loop(), _let_go, lines, bell)
        try:
            async with lines.one() as connection:
                await refuse_newer(connection, self._place)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        await self._bell.close()
        await self._desk.close()
        await self._lines.close()

    def twin(self) -> PostgresStore:
        return type(self)(self._place)

    async def migrate(self) -> None:
        self._opened()
        async with self._lines.one(patience=None) as connection:
            await migrate(connection, self._lines.connect, self._place)

    async def clock(self) -> Clock:
        [(now, uptime)] = await self._ask("clock")
        return Clock(now, uptime)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        ring = self._throttle.ring(rows.soon(jobs))
        patience = PATIENCE + len(jobs) / ENQUEUED_A_SECOND
        desk = self._opened()
        if not any(job.key for job in jobs):
            try:
                return await desk.apart(steps.enqueue(jobs, ring, self._place, fresh=True), patience)
            except AddressTaken:  # enqueued before, and its answer was lost
                log.debug("some of %d jobs are there already", len(jobs))
        if any(job.again for job in jobs):
            return await desk.transaction(lambda: steps.enqueue(jobs, ring, self._place), patience)
        return await desk.apart(steps.enqueue(jobs, ring, self._place), patience)

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await join.enqueue_in(connection, jobs, self._place, self._sql)

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return join.enqueue_in_sync(connection, jobs, self._place, self._sql)

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        if not queues or limit < 1:
            return []
        await self._meet(queues)
        answers = await self._opened().ask(steps.lease(queues, limit, owner, self._place), limit)
        return await self._readable(leased.jobs(answers[-1][0][0], queues, owner))

    async def heartbeat(self, worker: Worker, beats: Sequence[Beat]) -> Pulse:
        return await self._opened().apart(steps.heartbeat(worker, beats))

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        if not outcomes:
            return []
        ring = self._throttle.ring(rows.going_back(outcomes))

        def settle(some: Sequence[Outcome]) -> Step[list[Settled]]:
            return steps.settle(some, ring, self._place)

        if plain(outcomes):
            return await self._opened().together(settle(outcomes), len(outcomes))
        return await self._opened().transaction(lambda: steps.settle_all(outcomes, settle, self._place))

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
        future = time.monotonic() - self._looked_ahead > LOOK_AHEAD
        queries = steps.reclaim(queues, seconds, limit, owner, of, blind, grace, future=future)
        answers = await self._opened().alone(*queries)
        if future:
            self._looked_ahead = time.monotonic()
        [(adopted,)], [(lapsed, fences)], end = answers[:3]
        taken = rows.read_with_fences(lapsed, fences)
        next_end = max(0.0, end[0][0]) if end else None
        return Reclaimed(await self._readable(taken), adopted, next_end)

    async def take(self, bucket: str, wanted: int, capacity: int, interval: float) -> Grant:
        if wanted < 1:
            return Grant(0, 0.0)
        facts = {"bucket": bucket, "wanted": wanted, "capacity": capacity, "interval": interval}
        lock = Query("lock_bucket", {"bucket": bucket, "channel": self._place.channel})
        _, [granted] = await self._opened().alone(lock, Query("take", facts))
        return Grant(*granted)

    async def give_back(self, bucket: str, count: int, stamp: int) -> None:
        if count > 0:
            await self._ask("give_back", bucket=bucket, count=count, stamp=stamp)

    async def close(self, bucket: str, seconds: float) -> None:
        await self._ask("close", bucket=bucket, seconds=seconds)

    async def bucket(self, name: str) -> Bucket:
        return await operate.bucket(self._opened(), name)

    async def slot(self, schedule: str) -> datetime | None:
        found = await self._ask("slot", schedule=schedule)
        return found[0][0] if found else None

    async def slots(self) -> dict[str, datetime]:
        return dict(await self._ask("slots"))

    async def tick(self, schedule: str, slot: datetime, jobs: Sequence[NewJob]) -> bool:
        ring = self._throttle.ring(rows.soon(jobs))
        return await self._opened().transaction(lambda: steps.tick(schedule, slot, jobs, ring, self._place))

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        self._opened()
        await self._bell.wait(queues, timeout)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.ids == () or limit < 1:
            return Page([], None)
        return await operate.find(self._opened(), self._sql, self._place, which, limit, cursor)

    async def count(self) -> list[Counts]:
        return await operate.count(self._opened())

    async def checkup(self) -> list[Finding]:
        self._opened()
        async with self._lines.one(patience=None) as connection:
            return await checkup.checkup(connection, self._place)

    async def verify(self) -> list[str]:
        return await operate.verify(self._opened())

    async def workers(self) -> list[Worker]:
        return await operate.workers(self._opened())

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        return await operate.events(self._opened(), after, job, limit)

    async def requeue(self, which: Filter, limit: int = 1000) -> int:
        if which.ids == ():
            return 0
        return await operate.requeue(self._opened(), self._sql, self._place, which, limit)

    async def delete(self, which: Filter, limit: int = 1000) -> int:
        if which.ids == ():
            return 0
        return await operate.delete(self._opened(), self._sql, self._place, which, limit)

    async def cancel(self, refs: Sequence[Ref]) -> int:
        return await operate.cancel(self._opened(), refs) if refs else 0

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        if not refs or (priority is None and run_at is None):
            return 0
        return await operate.edit(self._opened(), self._place, refs, priority, run_at)

    async def place(self, ref: Ref) -> int:
        return await operate.place(self._opened(), ref)

    async def pause(self, queue: str, why: str) -> None:
        await self._ask("pause", queue=queue, why=why)

    async def resume(self, queue: str) -> bool:
        return bool(await self._ask("resume", queue=queue, channel=self._place.channel))

    async def _look(self, queues: Sequence[str]) -> tuple[bool, float | None]:
        [(ready, due)] = await self._ask("work", queues=json_text(queues))
        return ready, due

    async def _meet(self, queues: Iterable[str]) -> None:
        """Let queues have a row, which leases and pauses lock."""
        if unmet := set(queues) - self._met:
            await self._ask("meet", queues=json_text(sorted(unmet)))
            self._met |= unmet

    async def _readable(self, read: rows.Read) -> list[Job]:
        """The jobs that can be read; the others are put aside, so that they hold up nobody."""
        for ref, fence, why in read.unreadable:
            facts = {"queue": ref.queue, "id": ref.id, "fence": fence, "why": why}
            await self._ask("quarantine", error=json_text(UNREADABLE), **facts)
        return read.jobs

    async def _ask(self, name: str, **params: Any) -> list[Row]:
        return await self._opened().one(name, **params)

    def _opened(self) -> Desk:
        if not self._open:
            raise StoreUnavailable("the store is not open: use it inside 'async with'")
        return self._desk


def _let_go(lines: Lines, bell: Bell) -> None:
    bell.abandon()
    lines.abandon()
