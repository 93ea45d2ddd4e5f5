"""Worker: lease jobs for the room there is, start them, settle what ended, sleep until something happens."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec.structs import replace

from unstuck.app.app import Unstuck
from unstuck.app.scheduler import Scheduler
from unstuck.background import end, happens
from unstuck.config.checks import at_a_time, whole, within_a_day
from unstuck.config.policy import recovery_of
from unstuck.config.turns import Order, Queues, weights
from unstuck.operations.health import HEARD_EVERY, WorkerHealth
from unstuck.protocol.errors import ConfigError, StoreError, StoreUnavailable
from unstuck.protocol.fleet import Health, WorkerInfo
from unstuck.protocol.foreign import Adopting
from unstuck.protocol.ids import process_id, reaper_of
from unstuck.protocol.job import Category
from unstuck.protocol.outcome import Outcome, released
from unstuck.protocol.store import Store
from unstuck.recovery import processes
from unstuck.recovery.reaper import Reaper
from unstuck.stores.shared.urls import describe
from unstuck.text.durations import Seconds
from unstuck.worker.dependencies import Dependencies
from unstuck.worker.execute import Runtime
from unstuck.worker.forks import no_child_turns_this_loop
from unstuck.worker.heartbeat import Heartbeat
from unstuck.worker.held_leases import HeldLeases
from unstuck.worker.isolation.child import enter_lifespans, refuse_import
from unstuck.worker.isolation.parent import Isolation
from unstuck.worker.leasing import Leasing
from unstuck.worker.loop_watch import LoopWatch
from unstuck.worker.outbox import Outbox
from unstuck.worker.rate_limits import RateLimits
from unstuck.worker.retention import Retention, retention
from unstuck.worker.runners import Runners
from unstuck.worker.slots import STOPPED, Slots
from unstuck.worker.store_io import LONGEST_PAUSE, StoreIO
from unstuck.worker.turns import Turns

log = logging.getLogger("unstuck.worker")

MOST_JOBS = 1_000_000_000
FAREWELL = 6.0  # seconds for the last calls to the store of a worker that ends, after its last handler has
AT_ONCE = 3.0  # the same if it is to end at once


class Worker:
    """Runs the jobs of an app until stopped. Needs nothing but the store to agree with other workers.

    ``burst`` ends it when nothing is due any more; without ``wait_for_limits`` also while a rate or a refusal holds
    jobs back. ``until_idle`` ends it when nothing is left: it waits for retries, delayed jobs and those that other
    workers run, but not for queues that are paused or halted. ``max_jobs`` ends it when it has started that many and they
    have ended; ``spent`` is set when it takes no more.

    Several queues take fair turns, whatever lies in them. ``queues={"urgent": 5, "bulk": 1}`` gives them weights, and
    ``order="strict"`` serves a queue only while those before it have nothing that is due.

    ``recovery`` is the reaper's interval, 0 switches it off; by default it is what
    the queues ask for, or 60 seconds. ``supervised`` says that another process is
    started if this one ends: then it ends when a handler blocks the event loop for longer than a lease.
    """

    def __init__(
        self,
        app: Unstuck,
        *,
        queues: Queues | None = None,
        order: Order = "fair",
        concurrency: int = 10,
        grace: Seconds = 30.0,
        recovery: Seconds | None = None,
        burst: bool = False,
        until_idle: bool = False,
        max_jobs: int | None = None,
        wait_for_limits: bool = True,
        supervised: bool = False,
    ) -> None:
        if burst and until_idle:
            raise ConfigError("burst and until_idle are two ends of a worker: choose one")
        self.app = app
        self._until_idle = until_idle
        self._max_jobs = None if max_jobs is None else whole("max_jobs", max_jobs, 1, MOST_JOBS)
        self.id = process_id("worker")
        app.import_tasks()
        self._queues = app.policies(queues)
        self._weights, self._strict = weights(queues, order), order == "strict"
        self._concurrency = at_a_time("concurrency", concurrency)
        self._grace = within_a_day("grace", grace)
        self.recovery = recovery_of(self._queues) if recovery is None else within_a_day("recovery", recovery)
        self._burst, self._wait_for_limits, self._supervised = burst, wait_for_limits, supervised
        self._days = retention(self._queues, os.environ)
        self._health = WorkerHealth(self.id)
        self._health.recovery(self.recovery > 0)
        self._wakeup = asyncio.Event()  # something has happened that the loop below should look at
        self._ready = self._stopping = False
        self._at_once, self.spent = asyncio.Event(), asyncio.Event()
        self._last_call = math.inf  # when to wait no longer for the store
        self.halted = ""  # why we stopped by ourselves
        self.stuck = 0  # tasks and threads that did not end when they were cancelled

    async def run(self) -> None:
        """Work until stopped, then leave no lease behind."""
        async with self._at_work():
            taken = ", ".join(
                f"{name}={self._weights[name]}" if self._weights else name for name in self._queues
            ) + (" in this order" if self._strict and len(self._queues) > 1 else "")
            log.info(
                "worker %s takes %s, %d at a time, from %s", self.id, taken, self._concurrency, self._where
            )
            await self._work()

    async def _work(self) -> None:
        while not self._stopping:
            self._wakeup.clear()
            self._slots.start()
            self._slots.share()
            if self._slots.spent and not self.spent.is_set():
                log.info("worker %s has started %d jobs and takes no more", self.id, self._max_jobs)
                self.spent.set()
            wanted = self._store_io.wanted()
            opening = self._limits.next_open() if self._wait_for_limits else None
            if wanted or self._store_io.owed:
                await self._store_io.once(wanted)  # leases and settles
            elif await self._done(opening):
                return
            else:
                await self._leasing.sleep(opening)

    async def _done(self, opening: float | None) -> bool:
        """Whether nothing is left that this worker is to wait for."""
        if self._held or not (self._burst or self._until_idle or self.spent.is_set()):
            return False
        if self.spent.is_set():
            return True
        if self._burst:
            return opening is None
        try:
            queues = await self._store.count()
        except StoreError:
            return False
        return not any(
            each.pending or each.processing
            for each in queues
            if each.queue in self._queues and not each.stopped
        )

    async def process_jobs(self, limit: int = 10) -> int:
        """One round by hand: lease up to ``limit`` jobs, run them, and return how many ran.

        Those for which there is no token are given back at once, together.
        """
        whole("limit", limit, 1, self._concurrency)
        async with self._at_work():
            ran = await self._leasing.lease_first(limit)
            await self._store_io.once(0)
            while self._slots.running:
                self._wakeup.clear()
                await self._wakeup.wait()
        return ran

    def stop(self, *, at_once: bool = False) -> None:
        """Take no more jobs and end when the running ones have, or give them back and end at once."""
        if not self._stopping:
            log.info("worker %s takes no more jobs and ends when the running ones have", self.id)
        if at_once:
            log.info("worker %s ends at once", self.id)
            self._at_once.set()
            self._last_call = min(self._last_call, time.monotonic() + AT_ONCE)
        self._stopping = True
        if self._ready:
            self._store_io.stop()
        self._wakeup.set()

    def get_health_status(self) -> Health:
        """How this worker fares: HEALTHY, DEGRADED or CRITICAL, and why."""
        return self._health.health(full=self._ready and self._slots.free == 0)

    def _halt(self, why: str) -> None:
        """Stop by ourselves: what broke would break the next job, too."""
        if not self.halted:
            self._health.halt(why)
            self.halted = why
            self._slots.close(why=f"the worker halted: {why[:200]}")
            self.stop()

    def _failed(self, outcome: Outcome) -> None:
        if (why := outcome.failure) is not None:
            self._health.failure(why.code)
            if why.category is Category.CRITICAL:
                self._halt(why.message)

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[None]:
        """All that a worker needs besides jobs: entered before the first lease, left after the last."""
        refuse_import()
        async with AsyncExitStack() as stack:
            stack.enter_context(no_child_turns_this_loop())
            self._where = describe(self.app.url)
            # Before the lifespans: whatever becomes of them, there is a schema, and others can look at the store.
            self._store, away = await self._opened()
            self._must_be_offered(self._store)
            await enter_lifespans(stack, self.app.lifespans)
            # A job of any task may be in any queue of the app.
            tasks = self.app.tasks.values()
            soon = any(task.handler.isolate for task in tasks if task.queue in self._queues)
            isolation = Isolation(self.app.url, [task.handler for task in tasks], soon=soon)
            await self._connect(stack, isolation, away)
            async with asyncio.TaskGroup() as starting:
                warming = starting.create_task(isolation.begin())
                await self._announce()
                await self._reaper.begin()
            if wrong := warming.result():
                raise ConfigError(wrong)
            works = [
                self._reaper.go_on(),
                Retention(self._store, self._days).run(),
                Scheduler(self._store, self.app.schedules.values()).run(),
            ]
            helpers = [asyncio.create_task(work) for work in works]
            stack.push_async_callback(self._end, helpers)
            try:
                yield
            except BaseException:  # cancelled, or a mistake of ours: wait for nothing, give back what we hold
                self._stopping = True
                self._at_once.set()
                raise
            finally:
                await self._drain()

    async def _connect(self, stack: AsyncExitStack, isolation: Isolation, away: bool) -> None:
        """Make the parts of a worker, each from those that it uses, and begin to send heartbeats."""
        store, queues, wakeup = self._store, self._queues, self._wakeup
        tasks, recovery = self.app.tasks, self.recovery
        longest = max(policy.lease for policy in queues.values())
        every = min(HEARD_EVERY, *(policy.heartbeat for policy in queues.values()))
        batch = {
            name: max([1, *(task.handler.batch for task in tasks.values() if task.queue == name)])
            for name in queues
        }
        self._reaper = Reaper(store, interval=recovery, owner=reaper_of(self.id), store_was_away=away)
        self._outbox = outbox = Outbox(store)
        self._held = held = HeldLeases(self.id, outbox, wakeup)
        self._limits = limits = RateLimits(store, queues)
        dependencies = Dependencies(self.app.replaced_dependencies)
        runners = Runners(self._concurrency, isolation, dependencies, wakeup)
        stack.push_async_callback(self._close, runners)
        runtime = Runtime(runners, limits, held, self.app.middlewares)
        watch = LoopWatch(held, outbox, longest=longest, recovery=recovery > 0, supervised=self._supervised)
        self._heartbeat = heartbeat = Heartbeat(store, self._info, held, every, watch)
        self._slots = Slots(
            self._concurrency, self._max_jobs, tasks, runtime, heartbeat, outbox, self._failed, wakeup
        )
        turns = Turns(batch, self._weights, strict=self._strict)
        self._leasing = leasing = Leasing(
            store, queues, batch, turns, limits, held, self._slots, wakeup, burst=self._burst
        )
        self._store_io = StoreIO(outbox, held, leasing, heartbeat, self._health, self._halt, wakeup)
        self._ready = True
        await stack.enter_async_context(heartbeat)

    async def _opened(self) -> tuple[Store, bool]:
        """The store, as soon as it can be opened, and whether it was away; if we are to stop we do not wait for it."""
        pause, away = 0.2, False
        while True:
            try:
                return await self.app.store(), away
            except StoreUnavailable as error:
                if self._stopping:
                    raise
                log.warning("the store does not answer, will try again in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause, away = min(2 * pause, LONGEST_PAUSE), True

    def _must_be_offered(self, store: Store) -> None:
        """Refuse options that ride on jobs where the jobs are rows of a table that somebody else's program adds."""
        if not isinstance(store, Adopting):
            return
        for task in self.app.tasks.values():
            pattern = task.pattern()
            if store.is_table(task.queue) and (pattern.expires is not None or pattern.on_failure is not None):
                which = "expires" if pattern.expires is not None else "on_failure"
                raise ConfigError(
                    f"task {task.name!r} has {which}, and its queue {task.queue!r} is a table: its rows do not carry that. "
                    f"Leave {which} out, or give the task another queue"
                )

    async def _announce(self) -> None:
        """Be known before the first lease: a process that finds our leases must be able to find out that we died."""
        while not self._stopping:
            try:
                await self._heartbeat.confirm()
            except StoreError as error:
                await self._store_io.back_off(error)
            else:
                return

    def _info(self) -> WorkerInfo:
        self._health.report()
        return WorkerInfo(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            identity=processes.identity(),
            queues=tuple(self._queues),
            tasks=tuple(self.app.tasks),
            schedules=tuple(self.app.schedules),
            fires_stored=True,
            limits={name: policy.limits for name, policy in self._queues.items() if policy.limits},
            concurrency=self._concurrency,
            running=self._slots.running,
            health=self.get_health_status(),
            scan_ms=self._reaper.scan_ms,
        )

    async def _drain(self) -> None:
        """Give back what was not started, wait for the rest, cancel what takes too long."""
        self._slots.close()
        until = time.monotonic() + self._grace
        while self._slots.running and not self._at_once.is_set() and (left := until - time.monotonic()) > 0:
            self._wakeup.clear()
            if self._store_io.owed and not self._store_io.damaged:
                await self._store_io.once(0, left)
            else:
                await happens(self._wakeup, left)
        self.stuck = await self._slots.cancel()
        self._last_call = time.monotonic() + (AT_ONCE if self._at_once.is_set() else FAREWELL)
        while self._store_io.owed and (left := self._left()) and not self._store_io.damaged:
            await self._store_io.once(0, left)
        self.stuck += await self._store_io.close()
        if self._outbox:
            log.error("%d outcomes could not be stored: %s", len(self._outbox), self._outbox.ids())
        leaving, forcing = (
            asyncio.create_task(work) for work in (self._leave_nothing(), self._at_once.wait())
        )
        await asyncio.wait([leaving, forcing], timeout=self._left(), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([leaving], timeout=self._left())  # which is less if it was forced meanwhile
        forcing.cancel()
        if leaving.done():
            leaving.result()
        else:
            log.warning("the store does not answer: what worker %s may still hold will run out", self.id)
        self.stuck += await end([leaving])

    async def _leave_nothing(self) -> None:
        """A lease call that was cancelled may have been granted all the same: the store knows."""
        try:
            answer = await self._store.heartbeat(replace(self._info(), left=True), [])
            if not self._outbox:
                await self._store.settle([released(lease, why=STOPPED) for lease in answer.strangers])
        except StoreError as error:
            log.warning("could not ask for leases left behind, they will run out: %s", error)

    async def _end(self, helpers: Sequence[asyncio.Task[None]]) -> None:
        self.stuck += await self._leasing.close() + await end(helpers)
        self.stuck += await self._limits.finish(self._left())

    async def _close(self, runners: Runners) -> None:
        self.stuck += await runners.close()

    def _left(self) -> float:
        """Seconds that are left for calls to the store, once we end."""
        return max(0.0, self._last_call - time.monotonic())
