"""Worker: settle what ended, lease for the room there is, start, sleep until something happens."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from msgspec.structs import replace

from unstuck import kin
from unstuck.app import Unstuck
from unstuck.errors import ConfigError, StoreError
from unstuck.exchange import Exchange, opened
from unstuck.handler import Handler
from unstuck.health import HEARD_EVERY, Vitals
from unstuck.ids import process_id
from unstuck.intake import LOOK, Intake
from unstuck.isolate import Isolation
from unstuck.isolated import enter_lifespans, refuse_import
from unstuck.limits import Limits
from unstuck.model import Category, Health, Outcome, released
from unstuck.model import Worker as Facts
from unstuck.outbox import Outbox
from unstuck.perform import Ground
from unstuck.policy import at_a_time, whole, within_a_day
from unstuck.pulse import Pulse
from unstuck.reaper import Reaper
from unstuck.runners import Runners
from unstuck.schedule import Scheduler
from unstuck.seconds import Seconds
from unstuck.slots import HOARD, STOPPED, Slots
from unstuck.stores.whereabouts import whereabouts
from unstuck.upkeep import Upkeep, retention

log = logging.getLogger("unstuck.worker")

FAREWELL = 10.0  # seconds for the last settle of a worker that ends


class Worker:
    """Runs the jobs of an app until stopped. Needs nothing but the store to agree with other workers.

    ``burst`` ends it when nothing is due any more. ``recovery`` is the reaper's interval, 0 switches it off.
    """

    def __init__(
        self,
        app: Unstuck,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int = 10,
        grace: Seconds = 30.0,
        recovery: Seconds = 60.0,
        burst: bool = False,
    ) -> None:
        self.app = app
        self.id = process_id("worker")
        self._queues = app.policies(queues)
        self._batch = {
            name: max([1, *(task.handler.batch for task in app.tasks.values() if task.queue == name)])
            for name in self._queues
        }
        self._concurrency = at_a_time("concurrency", concurrency)
        self._grace = within_a_day("grace", grace)
        self._recovery = within_a_day("recovery", recovery)
        self._bell, self._force = asyncio.Event(), asyncio.Event()
        self._burst, self._stopping = burst, False
        self._days = retention(self._queues, os.environ)
        self._vitals = Vitals(self.id)
        self._vitals.recovery(self._recovery > 0)
        self.deaf, self.halted = 0, ""  # handlers that did not end when they were cancelled; why we stopped

    async def run(self) -> None:
        """Work until stopped, then leave no lease behind."""
        async with self._at_work():
            taken = ", ".join(self._queues)
            log.info(
                "worker %s takes %s, %d at a time, from %s", self.id, taken, self._concurrency, self._where
            )
            await self._work()

    async def process_jobs(self, limit: int = 10) -> int:
        """One round by hand: lease up to ``limit`` jobs, run them, and return how many ran.

        Those for which there is no token are given back at once, together.
        """
        whole("limit", limit, 1, self._concurrency)
        async with self._at_work():
            ran = await self._intake.lease_first(limit)
            await self._exchange.once(0)
            while self._slots.running:
                self._bell.clear()
                await self._bell.wait()
        return ran

    def stop(self, *, at_once: bool = False) -> None:
        """Take no more jobs and end when the running ones have, or give them back and end at once."""
        if not self._stopping:
            log.info("worker %s takes no more jobs and ends when the running ones have", self.id)
        if at_once:
            log.info("worker %s ends at once", self.id)
            self._force.set()
        self._stopping = True
        if (exchange := getattr(self, "_exchange", None)) is not None:
            exchange.ending = True
        self._bell.set()

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[None]:
        """All that a worker needs besides jobs: entered before the first lease, left after the last."""
        refuse_import()
        async with AsyncExitStack() as stack:
            self._where = whereabouts(self.app.url)
            # Before the lifespans: whatever becomes of them, there is a schema, and others can look at the store.
            self._store = await opened(self.app.store, lambda: self._stopping)
            await enter_lifespans(stack, self.app.lifespans)
            self._outbox = Outbox(self._store)
            self._limits = Limits(self._store, self._queues)
            self._reaper = Reaper(self._store, interval=self._recovery, owner=f"reaper-{self.id}")
            handlers = [task.handler for task in self.app.tasks.values() if task.queue in self._queues]
            isolation, limits = Isolation(self.app.url, handlers), self._limits
            self._runners = Runners(self._concurrency, self._bell.set, isolation, limits.buckets, limits.one)
            stack.push_async_callback(self._runners.close)
            ground = Ground(self.id, self._runners.run, self._refused, self._limits.one, self.app.middlewares)
            self._slots = Slots(
                size=self._concurrency,
                ground=ground,
                outbox=self._outbox,
                limits=self._limits,
                vitals=self._vitals,
                handler=self._handler,
                confirm=lambda: self._pulse.confirm(),  # noqa: PLW0108 - it is made later
                said=self._said,
                failed=self._failed,
                occupied=lambda: self._runners.abandoned,
                bell=self._bell,
            )
            every = min(HEARD_EVERY, *(policy.heartbeat for policy in self._queues.values()))
            self._pulse = await stack.enter_async_context(
                Pulse(self._store, self._facts, self._slots.held, every, self._slots.lose)
            )
            self._intake = Intake(
                self._store,
                self.id,
                self._queues,
                self._batch,
                self._limits,
                self._slots,
                self._pulse,
                self._bell,
            )
            self._intake.eager = self._burst
            self._exchange = Exchange(
                self._outbox, self._intake, self._slots, self._vitals, self._halt, self._force, self._bell
            )
            async with asyncio.TaskGroup() as starting:
                warming = starting.create_task(isolation.begin())
                await self._announce()
                await self._reaper.begin()
            if wrong := warming.result():
                raise ConfigError(wrong)
            works = [self._reaper.go_on(), Upkeep(self._store, self._days).run()]
            if self.app.schedules:
                works.append(Scheduler(self._store, self.app.schedules.values()).run())
            helpers = [asyncio.create_task(work) for work in works]
            stack.push_async_callback(self._end, helpers)
            try:
                yield
            except BaseException:  # cancelled, or a mistake of ours: wait for nothing, give back what we hold
                self._stopping = True
                self._force.set()
                raise
            finally:
                await self._drain()

    async def _end(self, helpers: Sequence[asyncio.Task[None]]) -> None:
        self._intake.close()
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, self._limits.told(), return_exceptions=True)

    async def _announce(self) -> None:
        """Be known before the first lease: whoever finds our leases must be able to tell that we died."""
        while not self._stopping:
            try:
                await self._pulse.confirm()
            except StoreError as error:
                await self._exchange.stumble(error)
            else:
                return

    def _opening(self) -> float | None:
        """Seconds until a limit lets more jobs start, if one holds any back; ``inline`` does not wait for that."""
        return self._limits.next_open()

    async def _work(self) -> None:
        while not self._stopping:
            self._bell.clear()
            self._slots.start()
            wanted = self._slots.room() if self._intake.hungry and not self._exchange.leasing else 0
            opening = self._opening()
            if wanted or self._exchange.owed:
                await self._exchange.once(wanted)
            elif self._burst and not self._slots.held and opening is None:
                return
            else:
                self._intake.watch()
                longest = HOARD if self._slots.waiting else LOOK
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._bell.wait(), min(longest, opening or longest))
                self._slots.share()
                self._intake.hungry |= opening is not None

    def _halt(self, why: str) -> None:
        """Stop by ourselves: what broke would break the next job, too."""
        if not self.halted:
            self._vitals.halt(why)
            self.halted = why
            self._slots.close(why=f"the worker halted: {why[:200]}")
            self.stop()

    async def _drain(self) -> None:
        """Give back what was not started, wait for the rest, cancel what takes too long."""
        self._slots.close()
        end = time.monotonic() + self._grace
        while self._slots.running and not self._force.is_set() and (left := end - time.monotonic()) > 0:
            self._bell.clear()
            if self._exchange.owed and not self._exchange.damaged:
                await self._exchange.once(0)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._bell.wait(), left)
        self.deaf = await self._slots.cancel()
        end = time.monotonic() + FAREWELL
        while self._exchange.owed and time.monotonic() < end and not self._exchange.damaged:
            await self._exchange.once(0)
        self._exchange.close()
        if self._outbox:
            log.error("%d outcomes could not be stored: %s", len(self._outbox), self._outbox.ids())
        await self._leave_nothing()

    async def _leave_nothing(self) -> None:
        """A lease call that was cancelled may have been granted all the same: the store knows."""
        try:
            answer = await self._store.heartbeat(replace(self._facts(), left=True), [])
            if not self._outbox:
                await self._store.settle([released(lease, why=STOPPED) for lease in answer.strangers])
        except StoreError as error:
            log.warning("could not ask for leases left behind, they will run out: %s", error)

    def _failed(self, outcome: Outcome) -> None:
        if (why := outcome.failure) is not None:
            self._vitals.failure(why.code)
            if why.category is Category.CRITICAL:
                self._halt(why.message)

    def _refused(self, queue: str, seconds: float) -> None:
        """A provider asked us to stay away: nothing more of the queue is started, by anybody."""
        self._limits.close(queue, seconds)
        self._slots.refuse(queue)

    def _said(self, word: str, _: Any) -> None:
        if word in ("stage", "progress"):
            self._pulse.nudge(urgent=word == "stage")

    def _handler(self, task: str) -> Handler | None:
        found = self.app.tasks.get(task)
        return found.handler if found else None

    def get_health_status(self) -> Health:
        """How this worker fares: HEALTHY, DEGRADED or CRITICAL, and why."""
        slots = getattr(self, "_slots", None)
        return self._vitals.health(full=slots is not None and slots.free == 0)

    def _facts(self) -> Facts:
        self._vitals.report()
        return Facts(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            identity=kin.identity(),
            queues=tuple(self._queues),
            tasks=tuple(self.app.tasks),
            schedules=tuple(self.app.schedules),
            limits={name: policy.limits for name, policy in self._queues.items() if policy.limits},
            concurrency=self._concurrency,
            running=self._slots.running,
            health=self.get_health_status(),
            scan_ms=self._reaper.scan_ms,
        )
