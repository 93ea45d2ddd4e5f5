"""Reaper: ends the leases that ran out, by the same rule as any worker. Any number of them may run."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Self, cast

from unstuck.background import end
from unstuck.config.checks import LONGEST_LEASE, number, within_a_day
from unstuck.protocol.availability import Availability, Seen
from unstuck.protocol.errors import ConfigError, StoreError
from unstuck.protocol.foreign import ForeignTables, Judge, Reaped
from unstuck.protocol.ids import process_id, reaper_of
from unstuck.protocol.job import EXPIRED, Ending, Job
from unstuck.protocol.leases import GRACE, Recovery
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.protocol.retry import judge
from unstuck.protocol.store import Leases, Store
from unstuck.recovery.clock_steps import bring_forward
from unstuck.recovery.processes import is_gone
from unstuck.recovery.reports import log_alert
from unstuck.stores import open_store, open_tables
from unstuck.stores.postgres.foreign.layout import Layout, layouts
from unstuck.stores.shared.urls import absolute_url
from unstuck.text.durations import Seconds

log = logging.getLogger("unstuck.reaper")

HOLD = 10.0  # seconds a reaper may take between taking leases over and settling them
BATCH = 200
NAMED = 3  # dead workers in one line of the log
SOONEST = 0.9  # of an interval: when the next recovery may come
SHORTEST_PAUSE = 0.2
SPARED = 0.5  # seconds between looks while a span in which no holder could reach the store spares leases that have ended
SPARED_FOR = 60.0  # seconds after such a span
LOOK = 2.5  # seconds: so the jobs of a dead host are back two seconds after their lease, however short it is
RETRY = 2.0  # seconds until the next try while the store does not answer


class Reaper:
    """Takes over what nobody beats for any more and requeues or fails it.

    ``async with Reaper("sqlite:///jobs.db"):`` runs one inside any application. ``interval`` 0 switches
    recovery off, also at start. Time in which the store could not be reached does not count against a lease:
    :class:`~unstuck.protocol.availability.Availability` knows which that was. A worker of this host whose process is provably gone is not
    waited for. ``store_was_away`` says that the store could not be opened at once: leases count from its first answer.

    ``Reaper("postgresql://…", tables=["jobs"])`` looks after tables of yours instead, as they are. What is
    processed there without a lease is given one of ``grace`` seconds if it was silent for as long.
    """

    def __init__(
        self,
        store: Store | ForeignTables | str,
        *,
        tables: Sequence[str | Layout] = (),
        interval: Seconds = 60.0,
        queues: Sequence[str] | None = None,
        grace: Seconds = GRACE,
        owner: str | None = None,
        store_was_away: bool = False,
    ) -> None:
        self._given = absolute_url(store) if isinstance(store, str) else store
        self._layouts = layouts(tables)
        if not isinstance(store, str):
            if tables:
                raise ConfigError(
                    "tables are named together with the URL of their database, not with a store"
                )
            self._use(store)
        self._interval = within_a_day("interval", interval)
        self._queues = queues
        self._grace = number("grace", grace, 0.0, LONGEST_LEASE)
        self.owner = owner or process_id("reaper")
        self._availability = Availability()
        self._availability.failing = store_was_away
        self._logged = -math.inf
        self._next_end: float | None = None
        self._spared = False
        self._recovered_dead: set[str] = set()
        self.scan_ms: float | None = None
        self.troubles: tuple[str, ...] = ()  # tables that the last recovery could not look at

    def _use(self, place: Store | ForeignTables) -> None:
        """A place is a store, foreign tables, or both: a store that has adopted tables."""
        self._place = place
        kind = type(place)
        self._tables = cast(ForeignTables, place) if issubclass(kind, ForeignTables) else None
        only_tables = self._tables is not None and not issubclass(kind, Leases)
        self._store = None if only_tables else cast(Store, place)

    async def __aenter__(self) -> Self:
        """Begin with a first recovery, and go on in the background. A URL is opened here."""
        async with AsyncExitStack() as stack:
            if isinstance(self._given, str) and self._layouts:
                self._use(await stack.enter_async_context(open_tables(self._given, self._layouts)))
            elif isinstance(self._given, str):
                store = await stack.enter_async_context(open_store(self._given))
                await store.migrate()
                self._use(store)
            await self.begin()
            self._running = asyncio.create_task(self.go_on())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await end([self._running])
        await self._stack.aclose()

    def last_scan(self) -> tuple[str, float] | None:
        """Its name and how many milliseconds its last scan took, if there was one."""
        return None if self.scan_ms is None else (self.owner, self.scan_ms)

    async def run(self) -> None:
        """Recover at once, then every interval and whenever the next lease ends, until cancelled."""
        await self.begin()
        await self.go_on()

    async def go_on(self) -> None:
        """The periodic part of ``run``."""
        while self._interval > 0:
            await self._rest(self._pause())
            await self._try(self._pass)

    async def _rest(self, pause: float) -> None:
        """Sleep until the next recovery, with an eye on the store: an outage in between must not go unnoticed."""
        end = time.monotonic() + pause
        while (left := end - time.monotonic()) > LOOK and not self._availability.failing:
            await self._sleep(LOOK)
            await self._try(self._look)
            left = end - time.monotonic()
        await self._sleep(max(0.0, min(left, RETRY) if self._availability.failing else left))

    async def _sleep(self, seconds: float) -> None:
        began = time.monotonic()
        await asyncio.sleep(seconds)
        self._availability.slept(began, seconds)

    async def begin(self) -> None:
        """The first recovery, before any work is taken; errors are logged, ``run`` tries again."""
        if self._interval > 0:
            await self._try(self._pass)
        else:
            log.warning(
                "recovery is off (interval 0): jobs of dead workers stay in processing until it is on"
            )

    async def _try(self, what: Callable[[], Awaitable[object]]) -> None:
        try:
            await what()
        except StoreError as error:
            log.warning("recovery failed, will try again: %s", error)
        except Exception:
            log.exception("recovery failed, will try again")

    async def _pass(self) -> None:
        await self.recover_dead()
        await self.recover()

    async def _look(self) -> Seen:
        with self._availability.asking():
            clock = await self._place.clock()
        return self._availability.look(clock)

    async def recover_dead(self) -> None:
        """End the leases of workers that ran on this host and whose process is gone, also those of their reapers.

        Only a process of the same pid namespace may judge that; a worker that cannot be judged keeps its lease.
        """
        with self._availability.asking():
            workers = (await self._place.fleet()).workers
        dead = {
            worker.id: f"process {worker.pid} of {worker.host} is gone"
            for worker in workers
            if worker.id not in self._recovered_dead
            and not worker.left
            and worker.identity
            and is_gone(worker.identity)
        }
        if dead:
            await self._recover(dead)
            self._recovered_dead |= dead.keys()

    async def recover(self, *, of: str | None = None, cause: str = "") -> list[Outcome]:
        """End every lease that ran out, or all of the worker ``of``, which died of ``cause``; return how."""
        return await self._recover({} if of is None else {of: cause})

    async def _recover(self, dead: Mapping[str, str]) -> list[Outcome]:
        """All leases of dead workers, by their causes, or else every lease that ran out."""
        started = time.monotonic()
        done: list[Outcome] = []
        seen = await self._look()
        # What a worker's reaper had just taken over, it has not ended either.
        causes = dict(dead) | {reaper_of(worker): cause for worker, cause in dead.items()}

        def judged(job: Job) -> Outcome:
            of = job.owner if causes else None
            return judge(job, of, causes.get(of or "", ""), jitter=random.random())  # noqa: S311 - not a secret

        ends: list[float | None] = []
        asked = Recovery(
            self.owner, HOLD, BATCH, self._queues, list(causes) or None, seen.blind, seen.at, self._grace
        )
        if self._store is not None:
            reaped = await self._drain(partial(self._take_over, self._store, judged, asked), done)
            ends.append(reaped.next_end)
        if self._tables is not None:
            before = len(done)
            reaped = await self._drain(partial(self._reap, self._tables, judged, asked), done)
            ends.append(reaped.next_end)
            for outcome in done[before:]:
                log_alert(outcome)
            self.troubles = reaped.troubles
        self._next_end = min((end for end in ends if end is not None), default=None)
        # ``next_end`` does not show when a lease runs out that has ended and is spared.
        self._spared = any(span.until < SPARED_FOR for span in seen.blind)
        self._availability.recovered()
        self.scan_ms = round((time.monotonic() - started) * 1000, 3)
        self._log(done, dead)
        if self._availability.put_back and self._store is not None:
            moved = await bring_forward(self._store, seen.at)
            log.warning("brought %d retries forward that were to come by the clock as it was before", moved)
            self._availability.put_back = False
        return done

    async def _drain(self, one: Callable[[], Awaitable[Reaped]], done: list[Outcome]) -> Reaped:
        """Batch by batch, until there is no more."""
        while True:
            reaped = await one()
            done += reaped.outcomes
            if reaped.adopted:
                log.info("gave a lease to %d jobs that were processed without one", reaped.adopted)
            for trouble in reaped.troubles:
                log.error("cannot recover: %s", trouble)
            if not reaped.more:
                return reaped

    async def _reap(self, tables: ForeignTables, judged: Judge, asked: Recovery) -> Reaped:
        with self._availability.asking():
            return await tables.reap(judged, asked)

    async def _take_over(self, store: Store, judged: Judge, asked: Recovery) -> Reaped:
        """Take leases over, then end them like any worker."""
        with self._availability.asking():
            taken = await store.reclaim(asked)
        outcomes = [judged(job) for job in taken.jobs]
        with self._availability.asking():
            answers = await store.settle(outcomes)
        ended: list[Outcome] = []
        for outcome, answer in zip(outcomes, answers, strict=True):
            if answer is Settled.APPLIED:
                log_alert(outcome)
            if answer is not Settled.LOST:
                ended.append(outcome)
        # Fewer than asked for may be all that one answer can carry: only an empty one means that there is no more.
        return Reaped(ended, taken.adopted, taken.next_end, more=bool(taken.jobs))

    def _pause(self) -> float:
        """Jittered, so that reapers that started together do not stay together."""
        pause = self._interval * random.uniform(SOONEST, 2 - SOONEST)  # noqa: S311 - not a secret
        # Often enough to see leases that were granted since, and then to come exactly when the next one ends.
        if self._availability.failing:
            pause = min(pause, RETRY)
        elif self._store is not None:  # tables of others may have no index for it, and have long leases
            pause = min(pause, LOOK)
            if self._spared:  # but leave a slow store time for others
                pause = min(pause, max(SPARED, 2 * (self.scan_ms or 0.0) / 1000))
        if self._next_end is not None and not self._availability.failing:
            pause = min(pause, self._next_end + random.uniform(0.05, 0.15))  # noqa: S311
        return max(pause, SHORTEST_PAUSE)

    def _log(self, done: Sequence[Outcome], dead: Mapping[str, str]) -> None:
        """Log each recovery; those that found nothing only once an interval."""
        if late := [outcome for outcome in done if outcome.event == EXPIRED]:
            log.info(
                "failed %d jobs that were not started before they expired",
                len(late),
                extra={"expired": len(late), "jobIds": [outcome.lease.id for outcome in late]},
            )
            done = [outcome for outcome in done if outcome.event != EXPIRED]
        now = time.monotonic()
        if not done and (dead or now - self._logged < SOONEST * self._interval):
            return
        if not dead:
            self._logged = now
        failures = sum(outcome.ending is Ending.FAILED for outcome in done)
        log.log(
            logging.WARNING if done else logging.INFO,
            "recovered %d jobs: %s: %d requeued, %d failed",
            len(done),
            _died(dead) if dead else "their leases ran out",
            len(done) - failures,
            failures,
            extra={
                "recovered": len(done),
                "reaper.requeues": len(done) - failures,
                "reaper.failures": failures,
                "reaper.scan_duration_ms": self.scan_ms,
                "jobIds": [outcome.lease.id for outcome in done],
            },
        )


def _died(dead: Mapping[str, str]) -> str:
    named = [f"worker {of} died: {cause}" for of, cause in list(dead.items())[:NAMED]]
    return "; ".join([*named, f"so did {len(dead) - NAMED} others"] if len(dead) > NAMED else named)
