"""LoopWatch: sees from another thread whether a worker's event loop turns, and does what the loop cannot while it does not."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from contextlib import suppress

from unstuck.protocol.errors import StoreError
from unstuck.protocol.ids import reaper_of
from unstuck.protocol.outcome import released
from unstuck.protocol.store import Store
from unstuck.recovery.reaper import Reaper
from unstuck.worker import runners
from unstuck.worker.held_lease import HeldLease, task_names
from unstuck.worker.held_leases import HeldLeases
from unstuck.worker.outbox import Outbox

log = logging.getLogger("unstuck.worker")

TICK = 0.5  # seconds between two looks
LATE = 1.0  # seconds without a turn after which it is logged, and what has not begun is given back
PATIENCE = 5.0  # seconds to wait for the store before the next look
FAREWELL = 30.0  # seconds for the last answers of a store that may be away
BLOCKED = "the event loop of its worker was blocked"


class LoopWatch:
    """Belongs to the event loop of the thread that makes it; ``run`` is for another one.

    ``longest`` is the longest lease that its queues give, in seconds. ``supervised`` means that another process is started
    if this one ends. Only time in which both threads could run counts: a process that was stopped has not blocked anything.
    """

    def __init__(
        self, held: HeldLeases, outbox: Outbox, *, longest: float, recovery: bool, supervised: bool
    ) -> None:
        self._held = held
        self._outbox = outbox
        self._usual = longest
        self._recovery = recovery
        self._supervised = supervised
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asked = False
        self._still = 0.0  # seconds for which the loop has not turned
        self._logged = self._given_up = False
        self._owed: list[HeldLease] = []  # claimed to be given back, which the store does not know yet

    async def run(self, store: Store) -> None:
        """Until cancelled. Store calls are bounded, because the next look must not wait for them."""
        last = time.monotonic()
        while True:
            now = time.monotonic()
            self._look(min(now - last, 2 * TICK))
            last = now
            try:
                await self._act(store)
            except Exception:
                log.exception("watching the event loop failed, will try again")
            await asyncio.sleep(TICK)

    async def _act(self, store: Store) -> None:
        if self._still > LATE or self._owed:
            await self._give_back(store)
        if self._still > self._longest() and not self._given_up:
            await self._give_up(store)

    def _look(self, passed: float) -> None:
        if not self._asked:
            self._asked, self._still = True, 0.0
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._turned)
            return
        self._still += passed
        if self._still > LATE and not self._logged:
            self._logged = True
            log.warning(
                "the event loop has not turned for %.1f s, it is at %s; on it run: %s. "
                "Make a handler that blocks a plain def, or isolate it",
                self._still,
                self._position(),
                task_names(one for one in self._held.all() if one.on_loop),
            )

    def _turned(self) -> None:
        """On the loop."""
        if self._logged:
            log.warning("the event loop turns again after %.1f s", self._still)
        self._logged = self._given_up = self._asked = False

    def _longest(self) -> float:
        leases = [one.context.seconds for one in self._held.all() if not one.ended]
        return max(leases, default=self._usual)

    async def _give_back(self, store: Store) -> None:
        """What has not begun: others may have room for it. The loop finds it claimed if it turns meanwhile."""
        if self._still > LATE:
            self._owed += [one for one in self._held.all() if one.withdraw()]
        if not self._owed:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await store.settle([released(one.lease, why=BLOCKED) for one in self._owed])
        except (StoreError, TimeoutError) as error:
            log.warning(
                "%d jobs could not be given back, will try again: %s", len(self._owed), error or "no answer"
            )
            return
        log.warning("gave back %d jobs that had not begun: %s", len(self._owed), BLOCKED)
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._held.given_back, self._owed)
        self._owed = []

    async def _give_up(self, store: Store) -> None:
        """Nothing else ends a handler that blocks the loop. Where nobody would start another process, only log it."""
        self._given_up = True
        why = f"the event loop did not turn for {self._still:.1f} s, at {self._position()}{self._task()}"
        if not self._supervised:
            log.error(
                "%s, which is longer than a lease. Nobody can end that here: run the worker under a supervisor "
                "(unstuck worker), which replaces the process",
                why,
            )
            return
        log.critical("%s: this process ends, and its supervisor starts another", why)
        with suppress(Exception):  # if that fails, the supervisor ends the leases
            async with asyncio.timeout(FAREWELL):
                if unsent := self._outbox.unsent():
                    await store.settle(unsent)
                if self._recovery:
                    await Reaper(store, owner=reaper_of(self._held.worker)).recover(
                        of=self._held.worker, cause=why
                    )
        os._exit(1)

    def _position(self) -> str:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented, for exactly this
        return "an unknown position" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def _task(self) -> str:
        """The task whose handler is on the stack; all that run on the loop if it is in a task of its own."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - as above
        while frame is not None:
            if frame.f_code.co_filename == runners.__file__ and (found := frame.f_locals.get("contexts")):
                return f" in task {found[0].job.task}"
            frame = frame.f_back
        names = task_names(one for one in self._held.all() if one.on_loop)
        return f"; on it run: {names}"
