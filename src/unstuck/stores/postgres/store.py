"""PostgresStore: the Store protocol on a PostgreSQL server."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from unstuck.protocol.availability import Clock
from unstuck.protocol.errors import StoreUnavailable
from unstuck.protocol.fleet import Fleet, WorkerInfo
from unstuck.protocol.job import Enqueued, Job, Json, NewJob, Ref
from unstuck.protocol.leases import Beat, HeartbeatAnswer, Reclaimed, Recovery, Share
from unstuck.protocol.limits import Grant, latest
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.protocol.records import PAGE, Kept, Record
from unstuck.stores.postgres import checkup, enqueue_in, lease_answer, operate, rows, steps
from unstuck.stores.postgres.address import Address
from unstuck.stores.postgres.connections import PATIENCE, Connections
from unstuck.stores.postgres.driver_errors import JobExists
from unstuck.stores.postgres.migrate import migrate, refuse_newer
from unstuck.stores.postgres.round_trips import RoundTrips
from unstuck.stores.postgres.rows import Query, Row, json_text
from unstuck.stores.postgres.statements import statements_for
from unstuck.stores.postgres.steps import Step
from unstuck.stores.postgres.wakeup import PostgresWakeup, Throttle
from unstuck.stores.shared import keeping
from unstuck.stores.shared.events import UNREADABLE
from unstuck.stores.shared.heads import FEW, ManyQueues, with_work
from unstuck.stores.shared.settling import fits_one_statement

log = logging.getLogger("unstuck.postgres")

LOOK_AHEAD = 60.0  # seconds between looks for heartbeats in the future, which exist after the server's clock was put back
ENQUEUED_A_SECOND = 1000  # at least; calls with many jobs may take longer accordingly


class PostgresStore:
    """Every operation is one statement, or a few that are sent and committed together."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._sql = statements_for(address)
        self._throttle = Throttle()
        self._met: set[str] = set()
        self._many = ManyQueues()
        self._looked_ahead = -LOOK_AHEAD
        self._open = False

    async def __aenter__(self) -> Self:
        self._connections = connections = Connections(self._address)
        self._trips = RoundTrips(connections, {name: text.encode() for name, text in self._sql.items()})
        self._wakeup = wakeup = PostgresWakeup(self._address, connections, self._look)
        self._open = True
        # A program that runs one event loop after the other without closing the store must not accumulate connections.
        self._forgotten = weakref.finalize(asyncio.get_running_loop(), _let_go, connections, wakeup)
        try:
            async with connections.one() as connection:
                await refuse_newer(connection, self._address)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        if self._connections.fork_guard.forked:
            return
        self._forgotten.detach()
        await self._wakeup.close()
        await self._trips.close()
        await self._connections.close()

    def twin(self) -> PostgresStore:
        return type(self)(self._address)

    async def migrate(self) -> None:
        self._opened()
        async with self._connections.one(patience=None) as connection:
            await migrate(connection, self._connections.connect, self._address)

    async def clock(self) -> Clock:
        [(now, uptime)] = await self._ask("clock")
        return Clock(now, uptime)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        notify = self._throttle.due(rows.soon(jobs))
        patience = PATIENCE + len(jobs) / ENQUEUED_A_SECOND
        trips = self._opened()
        if not any(job.key for job in jobs):
            try:
                return await trips.apart(steps.enqueue(jobs, notify, self._address, fresh=True), patience)
            except JobExists:  # enqueued before, and its answer was lost
                log.debug("some of %d jobs exist already", len(jobs))
        if any(job.again or job.interval for job in jobs):
            return await trips.transaction(lambda: steps.enqueue(jobs, notify, self._address), patience)
        return await trips.apart(steps.enqueue(jobs, notify, self._address), patience)

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await enqueue_in.enqueue_in(connection, jobs, self._address, self._sql)

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return enqueue_in.enqueue_in_sync(connection, jobs, self._address, self._sql)

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        if not queues or limit < 1:
            return []
        await self._meet(queues)
        if len(queues) <= FEW:
            return await self._lease(queues, limit, owner)

        async def lease(some: Mapping[str, Share], most: int) -> list[Job]:
            return await self._lease(some, most, owner)

        return await self._many.lease(queues, limit, lease, lambda: self._found(queues))

    async def _lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        if not queues or limit < 1:
            return []
        answers = await self._opened().ask(steps.lease(queues, limit, owner, self._address), limit)
        return await self._readable(lease_answer.jobs(answers[-1][0][0], queues, owner))

    async def heartbeat(self, worker: WorkerInfo, beats: Sequence[Beat]) -> HeartbeatAnswer:
        return await self._opened().apart(steps.heartbeat(worker, beats))

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        if not outcomes:
            return []
        notify = self._throttle.due(rows.going_back(outcomes))

        def settle(some: Sequence[Outcome]) -> Step[list[Settled]]:
            return steps.settle(some, notify, self._address)

        if fits_one_statement(outcomes):
            return await self._opened().together(settle(outcomes), len(outcomes))
        return await self._opened().transaction(lambda: steps.settle_all(outcomes, settle, self._address))

    async def reclaim(self, recovery: Recovery) -> Reclaimed:
        future = time.monotonic() - self._looked_ahead > LOOK_AHEAD
        queries = steps.reclaim(recovery, future=future)
        answers = await self._opened().alone(*queries)
        if future:
            self._looked_ahead = time.monotonic()
        [(adopted,)], [(lapsed, fences)], end = answers[:3]
        taken = rows.read_with_fences(lapsed, fences)
        next_end = max(0.0, min(seconds for (seconds,) in end)) if end else None
        return Reclaimed(await self._readable(taken), adopted, next_end)

    async def take(self, bucket: str, wanted: int = 0, capacity: int = 0, interval: float = 0.0) -> Grant:
        if wanted < 1:
            [standing] = await self._ask("bucket", bucket=bucket)
            return Grant(*standing)
        facts = {"bucket": bucket, "wanted": wanted, "capacity": capacity, "interval": interval}
        facts["latest"] = latest(interval)
        lock = Query("lock_bucket", {"bucket": bucket, "channel": self._address.channel})
        _, [granted] = await self._opened().alone(lock, Query("take", facts))
        return Grant(*granted)

    async def give_back(self, bucket: str, count: int = 0, stamp: int = 0, *, close_for: float = 0.0) -> None:
        back = [Query("give_back", {"bucket": bucket, "count": count, "stamp": stamp})] if count > 0 else []
        close = [Query("close", {"bucket": bucket, "seconds": close_for})] if close_for > 0 else []
        if back or close:
            await self._opened().alone(*back, *close)

    async def tick(
        self,
        schedule: str,
        slot: datetime | None,
        jobs: Sequence[NewJob],
        *,
        instead_of: datetime | None = None,
    ) -> bool:
        notify = self._throttle.due(rows.soon(jobs))
        return await self._opened().transaction(
            lambda: steps.tick(schedule, slot, jobs, notify, self._address, instead_of)
        )

    async def keep(self, kind: str, name: str, value: Json, version: int = 0) -> Kept:
        change = keeping.change(kind, name, value, version)
        one = Query("kept_one", {"kind": kind, "record": name})
        _, found = await self._opened().alone(Query("keep", change.params), one)
        return keeping.answer(change, found[0] if found else None)

    async def kept(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        keeping.check_listing(kind, after)
        if limit < 1:
            return []
        found = await self._ask("kept", kind=kind, after=after, limit=min(limit, PAGE))
        return [keeping.record(kind, *row) for row in found]

    async def forget(self, kind: str, older_than: float, limit: int = 1000) -> int:
        keeping.check_age(kind, older_than)
        if limit < 1:
            return 0
        [(gone,)] = await self._ask("forget", kind=kind, age=older_than, limit=limit)
        return int(gone)

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        self._opened()
        await self._wakeup.wait(queues, timeout)

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        if which.ids == () or limit < 1:
            return Page([], None)
        return await operate.find(self._opened(), self._sql, self._address, which, limit, cursor)

    async def count(self, ahead_of: Ref | None = None) -> list[Counts]:
        return await operate.count(self._opened(), ahead_of)

    async def checkup(self, *, deep: bool = False) -> list[Finding]:
        trips = self._opened()
        async with self._connections.one(patience=None) as connection:
            found = await checkup.checkup(connection, self._address)
        return found + await operate.broken_rules(trips) if deep else found

    async def fleet(self) -> Fleet:
        return await operate.fleet(self._opened())

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        return await operate.events(self._opened(), after, job, limit)

    async def requeue(self, which: Filter, limit: int = 1000) -> int:
        if which.ids == ():
            return 0
        return await operate.requeue(self._opened(), self._sql, self._address, which, limit)

    async def delete(self, which: Filter, limit: int = 1000) -> int:
        if which.ids == ():
            return 0
        return await operate.delete(self._opened(), self._sql, self._address, which, limit)

    async def cancel(self, refs: Sequence[Ref]) -> int:
        return await operate.cancel(self._opened(), refs) if refs else 0

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        if not refs or (priority is None and run_at is None):
            return 0
        return await operate.edit(self._opened(), self._address, refs, priority, run_at)

    async def pause(self, queue: str, why: str | None) -> bool:
        if why is None:
            return bool(await self._ask("resume", queue=queue, channel=self._address.channel))
        await self._ask("pause", queue=queue, why=why)
        return True

    async def _look(self, queues: Sequence[str]) -> tuple[bool, float | None]:
        names = await self._with_work(frozenset(queues), any_time=True)
        if not names:
            return False, None
        [(ready, due)] = await self._ask("work", queues=json_text(list(names)))
        return ready, due

    async def _with_work(self, queues: Collection[str], *, any_time: bool = False) -> Collection[str]:
        """The queues that have anything to look at: of a few it costs less to look at all than to ask."""
        return queues if len(queues) <= FEW else await self._found(queues, any_time=any_time)

    async def _found(self, queues: Collection[str], *, any_time: bool = False) -> Collection[str]:
        heads = Query("heads", {"most": len(queues), "any_time": any_time})
        [found] = await self._opened().ask([heads], 1)
        return with_work(queues, rows.names(found[0][0]) if found else None)

    async def _meet(self, queues: Iterable[str]) -> None:
        """Make sure that the queues have rows, which leases and pauses lock."""
        if not self._met.issuperset(queues):
            unmet = set(queues) - self._met
            await self._ask("meet", queues=json_text(sorted(unmet)))
            self._met |= unmet

    async def _readable(self, read: rows.Read) -> list[Job]:
        """The jobs that can be read; the others are put aside, so that they do not block others."""
        for ref, fence, why in read.unreadable:
            facts = {"queue": ref.queue, "id": ref.id, "fence": fence, "why": why}
            await self._ask("quarantine", error=json_text(UNREADABLE), **facts)
        return read.jobs

    async def _ask(self, name: str, **params: Any) -> list[Row]:
        return await self._opened().one(name, **params)

    def _opened(self) -> RoundTrips:
        if not self._open:
            raise StoreUnavailable("the store is not open: use it inside 'async with'")
        self._connections.fork_guard.check()
        return self._trips


def _let_go(connections: Connections, wakeup: PostgresWakeup) -> None:
    if not connections.fork_guard.forked:
        wakeup.abandon()
        connections.abandon()
