"""Worker: settle what ended, lease for the room there is, start, sleep until something happens."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Iterable
from typing import Any

from unstuck.app import Unstuck
from unstuck.errors import StoreError, StoreUnavailable
from unstuck.handler import Handler
from unstuck.ids import process_id
from unstuck.model import Worker as Facts
from unstuck.model import released
from unstuck.outbox import Outbox
from unstuck.policy import number, whole
from unstuck.pulse import Pulse
from unstuck.reaper import Reaper
from unstuck.slots import HOARD, STOPPED, Slots
from unstuck.store import Share, Store

log = logging.getLogger("unstuck.worker")

LOOK = 5.0  # seconds after which an idle worker asks for work even if nothing woke it
LONGEST_PAUSE = 5.0  # between tries while the store does not answer
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
        grace: float = 30.0,
        recovery: float = 60.0,
        burst: bool = False,
    ) -> None:
        self.app = app
        self.id = process_id("worker")
        self._queues = app.policies(queues)
        self._seconds = {name: policy.lease for name, policy in self._queues.items()}
        self._concurrency = whole("concurrency", concurrency, 1, 10_000)
        self._grace = number("grace", grace, 0.0, 86400.0)
        self._recovery = number("recovery", recovery, 0.0, 86400.0)
        self._burst = burst
        self._bell = asyncio.Event()
        self._hungry = True
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False
        self._force = asyncio.Event()
        self._failures = 0
        self.deaf = 0  # handlers that did not end when they were cancelled

    async def run(self) -> None:
        """Work until stopped, then leave no lease behind."""
        self._store = await self._open()
        reaper = Reaper(self._store, interval=self._recovery, owner=f"reaper-{self.id}")
        every = min(policy.heartbeat for policy in self._queues.values())
        self._outbox = Outbox(self._store)
        self._slots = Slots(
            self._concurrency, self.id, self._outbox, self._handler, self._confirm, self._bell
        )
        self._pulse = Pulse(self._store, self._facts, self._slots.held, every, self._slots.lose)
        await reaper.begin()
        helpers = [asyncio.create_task(reaper.go_on()), asyncio.create_task(self._pulse.run())]
        log.info("worker %s takes %s, %d at a time", self.id, ", ".join(self._queues), self._concurrency)
        try:
            await self._work()
        except BaseException:  # cancelled, or a mistake of ours: wait for nothing, but give back what we hold
            self._stopping = True
            self._force.set()
            raise
        finally:
            try:
                await self._drain()
            finally:
                await self._end(helpers)

    def stop(self) -> None:
        """Take no more jobs and end when the running ones have; called again, end at once."""
        if self._stopping:
            self._force.set()
        log.info("worker %s takes no more jobs and ends when the running ones have", self.id)
        self._stopping = True
        self._bell.set()

    async def _end(self, helpers: list[asyncio.Task[None]]) -> None:
        # Last of all: leases stay renewed while jobs finish.
        for helper in (*helpers, self._watching):
            if helper:
                helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        self._slots.end()

    async def _open(self) -> Store:
        pause = 0.2
        while True:
            try:
                return await self.app.store()
            except StoreUnavailable as error:
                if self._stopping:
                    raise
                log.warning("the store does not answer, will try again in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _work(self) -> None:
        while not self._stopping:
            self._bell.clear()
            self._slots.start()
            wanted = self._slots.room() if self._hungry else 0
            if wanted or self._outbox:
                await self._exchange(wanted)
            elif self._burst and not self._slots.held:
                return
            else:
                self._watch()
                await _at_most(self._bell.wait(), HOARD if self._slots.waiting else LOOK)
                self._slots.share()

    async def _exchange(self, wanted: int) -> None:
        """Write all outcomes gathered since the last time and take new jobs, together."""
        sent = time.monotonic()
        shares = {name: Share(policy.lease, wanted) for name, policy in self._queues.items()}
        settled, leased = await asyncio.gather(
            self._outbox.send(), self._store.lease(shares, wanted, self.id), return_exceptions=True
        )
        if not isinstance(settled, BaseException):
            self._slots.settled(settled)
            # A burst ends when nothing is due, and what was just settled may have brought new work.
            self._hungry |= self._burst and bool(settled)
        if not isinstance(leased, BaseException):
            self._slots.take(leased, self._seconds, sent)
            if wanted:
                self._hungry = bool(leased)
        for answer in (settled, leased):
            if isinstance(answer, BaseException):
                await self._stumble(answer)
                return
        self._failures = 0

    async def _stumble(self, error: BaseException) -> None:
        """The store failed us. Outcomes stay in memory, leases stay renewed, and we try again."""
        if not isinstance(error, StoreError):
            raise error
        pause = min(0.1 * 2**self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311
        self._failures = min(self._failures + 1, 10)
        log.warning("the store does not answer, will try again in %.1f s: %s", pause, error)
        await _at_most(self._force.wait(), pause)

    def _watch(self) -> None:
        if self._hungry or self._burst or (self._watching and not self._watching.done()):
            return
        self._watching = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        try:
            await self._store.wait(list(self._queues), LOOK)
        except Exception as error:  # noqa: BLE001 - a worker that does not look any more looks alive, and is not
            log.warning("waiting for work failed: %s", error)
            await asyncio.sleep(1.0)
        self._hungry = True
        self._bell.set()

    async def _drain(self) -> None:
        """Give back what was not started, wait for the rest, cancel what takes too long."""
        self._slots.close()
        end = time.monotonic() + self._grace
        while self._slots.running and not self._force.is_set() and (left := end - time.monotonic()) > 0:
            self._bell.clear()
            if self._outbox:
                await self._exchange(0)
            else:
                await _at_most(self._bell.wait(), left)
        self.deaf = await self._slots.cancel()
        end = time.monotonic() + FAREWELL
        while self._outbox and time.monotonic() < end:
            await self._exchange(0)
        await self._leave_nothing()

    async def _leave_nothing(self) -> None:
        """A lease call that was cancelled may have been granted all the same: the store knows."""
        try:
            answer = await self._store.heartbeat(self._facts(), [])
            if not self._outbox:
                await self._store.settle([released(lease, why=STOPPED) for lease in answer.strangers])
        except StoreError as error:
            log.warning("could not ask for leases left behind, they will run out: %s", error)

    async def _confirm(self) -> None:
        """Ask whether our leases still hold."""
        await self._pulse.beat()

    def _handler(self, task: str) -> Handler | None:
        found = self.app.tasks.get(task)
        return found.handler if found else None

    def _facts(self) -> Facts:
        return Facts(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=tuple(self._queues),
            tasks=tuple(self.app.tasks),
            concurrency=self._concurrency,
            running=self._slots.running,
        )


async def _at_most(work: Any, seconds: float) -> None:
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return
