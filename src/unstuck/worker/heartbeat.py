"""Heartbeat: renews the leases of a worker from a thread of its own, and finds out which of them are lost."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self

from unstuck.background import end, happens
from unstuck.protocol.errors import StoreError, StoreUnavailable
from unstuck.protocol.fleet import WorkerInfo
from unstuck.protocol.job import Lease
from unstuck.protocol.leases import Verdict
from unstuck.protocol.outcome import released
from unstuck.protocol.store import Store
from unstuck.worker.held_lease import HeldLease, task_names
from unstuck.worker.held_leases import HeldLeases
from unstuck.worker.loop_watch import LoopWatch

log = logging.getLogger("unstuck.worker")

LATE = 1.0  # seconds by which a beat may be late without a word about it
SOONEST = 0.5  # seconds between two beats that progress alone asks for
AT_ONCE = 0.1  # the same for a new stage
PATIENCE = 10.0  # seconds for the store to be opened
FAREWELL = 1.0  # seconds for the answer to a beat that is under way when the worker ends


class Heartbeat:
    """Renews all held leases in one statement, with connections of its own.

    A handler that blocks the event loop does not delay it; only one that holds the interpreter does.
    ``info`` returns what others can read about this worker.
    """

    def __init__(
        self,
        store: Store,
        info: Callable[[], WorkerInfo],
        held: HeldLeases,
        every: float,
        watch: LoopWatch,
    ) -> None:
        self._origin = self._store = store
        self._open = asyncio.Event()
        self._info = info
        self._held = held
        self._every = every
        self._watch = watch
        self._strangers: set[Lease] = set()
        self._beating = asyncio.Lock()
        self._urgent = self._ending = False
        self._beaten = time.monotonic()
        self._failing = False
        # On the worker's loop: a heartbeat got through after one that failed.
        self.answers_again = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._caller = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._living = self._loop.create_task(self._live())
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="unstuck-heartbeat", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending = True
        self.nudge(urgent=True)
        if not await happens(self._ended, FAREWELL):
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._living.cancel)
            await happens(self._ended, PATIENCE)

    async def confirm(self) -> None:
        """Ask now whether our leases hold; raises StoreError if the store does not answer."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._confirm(), self._loop))

    def updated(self, what: str, _: Any) -> None:
        """A handler has reported something: a stage is sent at once, progress soon. May be called from any thread."""
        if what in ("stage", "progress"):
            self.nudge(urgent=what == "stage")

    def nudge(self, *, urgent: bool) -> None:
        """Send the next heartbeat soon, or at once. May be called from any thread."""
        self._urgent |= urgent
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._wake.set)

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._living)
        finally:
            # What is left was begun by code that does not wait for the answer any more.
            self._loop.run_until_complete(end(asyncio.all_tasks(self._loop)))
            self._loop.close()
            with suppress(RuntimeError):  # nobody waits any more
                self._caller.call_soon_threadsafe(self._ended.set)

    async def _live(self) -> None:
        while not self._ending:
            try:
                async with self._origin.twin() as self._store:
                    self._open.set()
                    watching = asyncio.create_task(self._watch.run(self._store))
                    try:
                        await self._keep_beating()
                    finally:
                        await end([watching])
            except Exception as error:  # noqa: BLE001 - without a pulse every lease would run out
                log.warning("heartbeats failed, will try again: %s", error)
                self._failing = True
                self._open.clear()
                await self._rest(min(1.0, self._every))

    async def _confirm(self) -> None:
        try:
            await asyncio.wait_for(self._open.wait(), PATIENCE)
        except TimeoutError:
            raise StoreUnavailable("the store could not be opened for heartbeats") from None
        await self._beat()

    async def _keep_beating(self) -> None:
        while not self._ending:
            pause = self._every
            last, running = self._beaten, self._running()
            try:
                if not await self._beat():
                    pause = min(pause, 1.0)
                self._blame(self._beaten - last - self._every, running | self._running())
            except StoreUnavailable as error:
                log.warning("heartbeat failed, will try again: %s", error)
                self._failing = True
                pause = min(pause, 1.0)
            await self._rest(pause)

    async def _rest(self, pause: float) -> None:
        """Until the next heartbeat is due or there is something to report."""
        since = time.monotonic()  # from the last try, or one that talks a lot would not let up in an outage
        end = since + pause
        while not self._ending:
            if self._urgent:
                end = min(end, since + AT_ONCE)
            if (left := end - time.monotonic()) <= 0:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), left)
                end = min(end, max(since + SOONEST, time.monotonic()))
            self._wake.clear()
        self._urgent = False

    async def _beat(self) -> bool:
        """Whether all leases could be asked for."""
        async with self._beating:
            held = [one for one in self._held.all() if self._is_worked_on(one)]
            beats = [one.beat() for one in held]
            sent = time.monotonic()
            answer = await self._store.heartbeat(self._info(), beats)
            self._beaten = time.monotonic()
            if self._failing:
                self._failing = False
                self._caller.call_soon_threadsafe(self.answers_again.set)
            for one, beat in zip(held, beats, strict=True):
                if (verdict := answer.verdicts.get(beat.lease)) is None:
                    continue  # neither renewed nor lost: its trust goes on running out
                if verdict is Verdict.HELD:
                    one.trust(sent, beat.seconds)
                elif not one.ended:
                    one.verdict = verdict  # at once, so that it is not started meanwhile
                    self._caller.call_soon_threadsafe(self._held.lose, one, verdict)
            await self._give_back(answer.strangers)
            return len(answer.verdicts) >= len(beats)

    def _is_worked_on(self, one: HeldLease) -> bool:
        """A lease that nobody works on is not renewed, so that its job is recovered."""
        if one.abandoned and one.verdict is Verdict.HELD:
            one.verdict = Verdict.LOST
            facts = {"jobId": one.job.id, "task": one.job.task}
            log.error("job %s ended without an outcome: its lease will run out", one.job.id, extra=facts)
        return one.verdict is Verdict.HELD

    async def _give_back(self, strangers: Iterable[Lease]) -> None:
        """Release what is ours in the store but unknown here, twice in a row: the answer to its lease call was lost."""
        unknown = self._held.unknown(strangers)
        forgotten = unknown & self._strangers
        self._strangers = unknown - forgotten
        if not forgotten:
            return
        mine = self._held.disown(forgotten)
        log.warning("giving back %d leases whose answer was lost", len(mine))
        try:
            await self._store.settle([released(lease, why="the answer was lost") for lease in mine])
        except StoreError as error:
            log.warning("could not give them back, they will run out: %s", error)

    def _running(self) -> set[HeldLease]:
        return {one for one in self._held.all() if one.running}

    def _blame(self, late: float, running: set[HeldLease]) -> None:
        """Log heartbeats that were late by so many seconds, with the jobs that ran meanwhile: one of them may be the cause."""
        if late <= LATE or not running:
            return
        log.warning(
            "heartbeats come %.1f s late: something held the interpreter or stopped the process; running: %s. "
            "Isolate handlers that do not let go of the interpreter (isolate=True)",
            late,
            task_names(running),
            extra={"jobIds": [one.job.id for one in running]},
        )
