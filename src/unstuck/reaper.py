"""Reaper: ends the leases that ran out, by the same rule as any worker. Any number of them may run."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Self, cast

from unstuck.abilities import Judge, Reapable, Reaped
from unstuck.alerts import tell_alert
from unstuck.errors import ConfigError, StoreError
from unstuck.ids import process_id
from unstuck.judge import judge
from unstuck.kin import gone
from unstuck.layout import Layout, layouts
from unstuck.model import Job, Outcome, Settled, Word
from unstuck.policy import LONGEST_LEASE, number, within_a_day
from unstuck.seconds import Seconds
from unstuck.store import GRACE, Blind, Store
from unstuck.stores import open_store, open_tables

log = logging.getLogger("unstuck.reaper")

HOLD = 30.0  # seconds a reaper may take between taking leases over and settling them
BATCH = 200
STEP = 5.0  # a clock that went this much faster than ours has been set
FOREVER = 1e9
SOONEST = 0.9  # of an interval: when the next recovery may come
SHORTEST_PAUSE = 0.2
LOOK = 2.5  # seconds: so the jobs of a dead host are back two seconds after their lease, however short it is
RETRY = 2.0  # seconds until the next try while the store does not answer


class Reaper:
    """Takes over what nobody beats for any more and requeues or fails it.

    ``async with Reaper("sqlite:///jobs.db"):`` runs one inside any application. ``interval`` 0 switches
    recovery off, also at start. A lease is not held against a worker for time in which the store could not
    be reached: that is what ``blind`` spans are for. A worker of this host whose process is provably gone
    is not waited for.

    ``Reaper("postgresql://…", tables=["jobs"])`` looks after tables of yours instead, as they are. What is
    processed there without a lease is given one of ``grace`` seconds if it was silent for as long.
    """

    def __init__(
        self,
        store: Store | Reapable | str,
        *,
        tables: Sequence[str | Layout] = (),
        interval: Seconds = 60.0,
        queues: Sequence[str] | None = None,
        grace: Seconds = GRACE,
        owner: str | None = None,
    ) -> None:
        self._given = store
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
        self._blind: deque[tuple[float, float]] = deque(maxlen=32)  # on our monotonic clock
        self._answered = time.monotonic()
        self._told = -math.inf
        self._failing = False
        self._clocks: tuple[float, float] | None = None
        self._next_end: float | None = None
        self._buried: set[str] = set()
        self.scan_ms: float | None = None
        self.troubles: tuple[str, ...] = ()  # tables that the last recovery could not look at

    def _use(self, place: Store | Reapable) -> None:
        self._place = place
        can = dir(type(place))
        self._reapable = cast(Reapable, place) if "reap" in can else None
        self._store = cast(Store, place) if "reclaim" in can or self._reapable is None else None

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
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
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
            await asyncio.sleep(self._pause())
            await self._try()

    async def begin(self) -> None:
        """The first recovery, before any work is taken; errors are logged, ``run`` tries again."""
        if self._interval > 0:
            await self._try()
        else:
            log.warning(
                "recovery is off (interval 0): jobs of dead workers stay in processing until it is on"
            )

    async def _try(self) -> None:
        try:
            await self.bury()
            await self.recover()
        except StoreError as error:
            log.warning("recovery failed, will try again: %s", error)
        except Exception:
            log.exception("recovery failed, will try again")

    async def bury(self) -> None:
        """End the leases of workers that ran on this host and whose process is gone.

        Only a process of the same pid namespace may judge that; whoever cannot be judged has its lease.
        """
        for worker in await self._place.workers():
            if worker.id not in self._buried and worker.identity and gone(worker.identity):
                await self.recover(of=worker.id, cause=f"process {worker.pid} of {worker.host} is gone")
                self._buried.add(worker.id)

    async def recover(self, *, of: str | None = None, cause: str = "") -> list[Outcome]:
        """End every lease that ran out, or all of the owner ``of``, who died of ``cause``; return how."""
        started = time.monotonic()
        done: list[Outcome] = []
        was_failing, self._failing = self._failing, True
        blind = await self._blindness(was_failing)

        def said(job: Job) -> Outcome:
            return judge(job, of, cause, jitter=random.random())  # noqa: S311 - not a secret

        ends: list[float | None] = []
        if self._store is not None:
            reaped = await self._drain(partial(self._take_over, self._store, said, of, blind), done)
            ends.append(reaped.next_end)
        if self._reapable is not None:
            facts: dict[str, Any] = {"queues": self._queues, "of": of, "blind": blind, "grace": self._grace}
            before = len(done)
            reaped = await self._drain(partial(self._reapable.reap, said, BATCH, **facts), done)
            ends.append(reaped.next_end)
            for outcome in done[before:]:
                tell_alert(outcome)
            self.troubles = reaped.troubles
        self._next_end = min((end for end in ends if end is not None), default=None)
        self._failing, self._answered = False, time.monotonic()
        self.scan_ms = round((self._answered - started) * 1000, 3)
        self._tell(done, f"worker {of} died: {cause}" if of else "")
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

    async def _take_over(self, store: Store, said: Judge, of: str | None, blind: Sequence[Blind]) -> Reaped:
        """Take leases over, then end them like any worker."""
        taken = await store.reclaim(
            self._queues, HOLD, BATCH, self.owner, of=of, blind=blind, grace=self._grace
        )
        outcomes = [said(job) for job in taken.jobs]
        answers = await store.settle(outcomes)
        ended: list[Outcome] = []
        for outcome, answer in zip(outcomes, answers, strict=True):
            if answer is Settled.APPLIED:
                tell_alert(outcome)
            if answer is not Settled.LOST:
                ended.append(outcome)
        return Reaped(ended, taken.adopted, taken.next_end, more=len(taken.jobs) >= BATCH)

    async def _blindness(self, was_failing: bool) -> list[Blind]:
        """The spans in which holders could not be heard, as far as this reaper knows."""
        clock = await self._place.clock()
        now, there = time.monotonic(), clock.now.timestamp()
        if was_failing:
            self._blind.append((self._answered, now))
        if self._clocks is not None:
            ahead = (there - self._clocks[1]) - (now - self._clocks[0])
            if ahead > STEP:
                log.warning("the store's clock went %.1f s ahead: running leases get that much longer", ahead)
                self._blind.append((now - ahead, now))
        self._clocks = (now, there)
        spans = list(self._blind)
        if clock.uptime < FOREVER:
            spans.append((now - FOREVER, now - clock.uptime))
        return [Blind(now - since, now - until) for since, until in _union(spans)]

    def _pause(self) -> float:
        """Jittered, so that reapers that started together do not stay together."""
        pause = self._interval * random.uniform(SOONEST, 2 - SOONEST)  # noqa: S311 - not a secret
        # Often enough to see leases that were granted since, and then to come exactly when the next one ends.
        if self._failing:
            pause = min(pause, RETRY)
        elif self._store is not None:  # tables of others may have no index for it, and have long leases
            pause = min(pause, LOOK)
        if self._next_end is not None and not self._failing:
            pause = min(pause, self._next_end + random.uniform(0.05, 0.15))  # noqa: S311
        return max(pause, SHORTEST_PAUSE)

    def _tell(self, done: Sequence[Outcome], dead: str) -> None:
        """Each recovery is told; those in between that found nothing only once an interval."""
        if not done and (dead or self._answered - self._told < SOONEST * self._interval):
            return
        if not dead:
            self._told = self._answered
        failures = sum(outcome.word is Word.FAILED for outcome in done)
        log.log(
            logging.WARNING if done else logging.INFO,
            "recovered %d jobs: %s: %d requeued, %d failed",
            len(done),
            dead or "their leases ran out",
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


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time without overlaps, or it would be forgiven twice."""
    joined: list[tuple[float, float]] = []
    for since, until in sorted(spans):
        if joined and since <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(until, joined[-1][1]))
        else:
            joined.append((since, until))
    return joined
