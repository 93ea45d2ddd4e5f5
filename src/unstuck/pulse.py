"""Pulse: keeps the leases of a worker alive from a thread of its own, and tells which of them are lost."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Self

from unstuck.errors import StoreError, StoreUnavailable
from unstuck.held import Held
from unstuck.model import Lease, Verdict, Worker, released
from unstuck.store import Store

log = logging.getLogger("unstuck.worker")

LATE = 1.0  # seconds by which a beat may be late, and the event loop silent, without a word about it
SOONEST = 0.5  # seconds between two beats that progress alone asks for
AT_ONCE = 0.1  # the same for a new stage
FAREWELL = 10.0  # seconds for the last answer of a store that may be away
REMEMBERED = 10_000  # leases given back as unknown


class Pulse:
    """Beats for everything in ``held`` in one statement, with connections of its own.

    A handler that blocks the event loop does not hold it up; only one that holds the interpreter does.
    ``lost`` is called on the event loop for each lease that is gone.
    """

    def __init__(
        self,
        store: Store,
        worker: Callable[[], Worker],
        held: dict[Lease, Held],
        every: float,
        lost: Callable[[Held, Verdict], None],
    ) -> None:
        self._origin = self._store = store
        self._open = asyncio.Event()
        self._worker = worker
        self._held = held
        self._every = every
        self._lost = lost
        self._strangers: set[Lease] = set()
        self.given_back: set[Lease] = set()  # because their answers were so late that we took them for lost
        self._beating = asyncio.Lock()
        self._urgent = self._ending = False
        self._beaten = time.monotonic()
        self._asked: float | None = None
        self._blamed = False

    async def __aenter__(self) -> Self:
        self._caller = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="unstuck-pulse", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending = True
        self.nudge(urgent=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), FAREWELL)

    async def confirm(self) -> None:
        """Ask now whether our leases hold; raises StoreError if nobody answers."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._confirm(), self._loop))

    def nudge(self, *, urgent: bool) -> None:
        """Beat soon, or at once, because there is something to tell. May be called from any thread."""
        self._urgent |= urgent
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._wake.set)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        finally:
            # By somebody who does not wait for the answer any more.
            if asked := asyncio.all_tasks(self._loop):
                for task in asked:
                    task.cancel()
                self._loop.run_until_complete(asyncio.wait(asked))
            self._loop.close()
            with suppress(RuntimeError):  # nobody waits any more
                self._caller.call_soon_threadsafe(self._ended.set)

    async def _live(self) -> None:
        while not self._ending:
            try:
                async with self._origin.twin() as self._store:
                    self._open.set()
                    await self._keep_beating()
            except Exception as error:  # noqa: BLE001 - without a pulse every lease would run out
                log.warning("heartbeats failed, will try again: %s", error)
                self._open.clear()
                await self._rest(min(1.0, self._every))

    async def _confirm(self) -> None:
        try:
            await asyncio.wait_for(self._open.wait(), FAREWELL)
        except TimeoutError:
            raise StoreUnavailable("the store could not be opened for heartbeats") from None
        await self._beat()

    async def _keep_beating(self) -> None:
        while not self._ending:
            self._look_at_loop()
            pause = self._every
            last, running = self._beaten, self._running()
            try:
                if not await self._beat():
                    pause = min(pause, 1.0)
                self._blame(self._beaten - last - self._every, running | self._running())
            except StoreUnavailable as error:
                log.warning("heartbeat failed, will try again: %s", error)
                pause = min(pause, 1.0)
            await self._rest(pause)

    async def _rest(self, pause: float) -> None:
        """Until the next beat is due or somebody has something to tell."""
        since = time.monotonic()  # from the last try, or one that talks a lot would not let up in an outage
        end = since + pause
        while not self._ending:
            if self._urgent:
                end = min(end, since + AT_ONCE)
            if (left := end - time.monotonic()) <= 0:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), min(left, LATE))
                end = min(end, max(since + SOONEST, time.monotonic()))
            self._wake.clear()
            self._look_at_loop()
        self._urgent = False

    async def _beat(self) -> bool:
        """Whether all leases could be asked for."""
        async with self._beating:
            held = [one for one in list(self._held.values()) if one.verdict is Verdict.HELD]
            beats = [one.beat() for one in held]
            sent = time.monotonic()
            answer = await self._store.heartbeat(self._worker(), beats)
            self._beaten = time.monotonic()
            for one, beat in zip(held, beats, strict=True):
                if (verdict := answer.verdicts.get(beat.lease)) is None:
                    continue  # neither renewed nor lost: its trust goes on running out
                if verdict is Verdict.HELD:
                    one.trust(sent, beat.seconds)
                elif not one.ended:
                    one.verdict = verdict  # at once, so that it is not started meanwhile
                    self._caller.call_soon_threadsafe(self._lost, one, verdict)
            await self._give_back(answer.strangers)
            return len(answer.verdicts) >= len(beats)

    async def _give_back(self, strangers: Iterable[Lease]) -> None:
        """Release what is ours by the store's word but unknown to us twice running: its answer was lost."""
        unknown = {lease for lease in strangers if lease not in self._held}
        forgotten = unknown & self._strangers
        self._strangers = unknown - forgotten
        if not forgotten:
            return
        if len(self.given_back) > REMEMBERED:
            self.given_back = set()
        self.given_back |= forgotten
        mine = sorted(lease for lease in forgotten if lease not in self._held)  # it may have come this moment
        log.warning("giving back %d leases whose answer was lost", len(mine))
        try:
            await self._store.settle([released(lease, why="the answer was lost") for lease in mine])
        except StoreError as error:
            log.warning("could not give them back, they will run out: %s", error)

    def _look_at_loop(self) -> None:
        """See whether the event loop still turns; if not, say who is on it."""
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
            with suppress(RuntimeError):
                self._caller.call_soon_threadsafe(self._answer)
        elif now - self._asked > LATE and not self._blamed:
            self._blamed = True
            log.warning(
                "the event loop has not turned for %.1f s, it is at %s; on it run: %s. "
                "Make a handler that blocks a plain def, or isolate it",
                now - self._asked,
                _place(self._watched),
                _names(one for one in list(self._held.values()) if one.on_loop),
            )

    def _answer(self) -> None:
        if self._blamed and self._asked is not None:
            log.warning("the event loop turns again after %.1f s", time.monotonic() - self._asked)
        self._asked, self._blamed = None, False

    def _running(self) -> set[Held]:
        return {one for one in list(self._held.values()) if one.running}

    def _blame(self, late: float, running: set[Held]) -> None:
        """Beats that were late by so many seconds: whoever ran meanwhile may be the one who kept them."""
        if late <= LATE or not running:
            return
        log.warning(
            "heartbeats come %.1f s late: something held the interpreter or stopped the process; running: %s. "
            "Isolate handlers that do not let go of the interpreter (isolate=True)",
            late,
            _names(running),
            extra={"jobIds": [one.job.id for one in running]},
        )


def _names(held: Iterable[Held]) -> str:
    tasks: Sequence[str] = sorted({one.job.task for one in held})
    return ", ".join(tasks) or "no job"


def _place(thread: int) -> str:
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - documented, for exactly this
    return "an unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
