"""Exchange: what a worker tells the store and asks of it, together, again and again until it answers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from unstuck.errors import StoreDamaged, StoreError, StoreUnavailable
from unstuck.health import Vitals
from unstuck.intake import Intake
from unstuck.outbox import Outbox
from unstuck.slots import Slots
from unstuck.store import Store

log = logging.getLogger("unstuck.worker")

LONGEST_PAUSE = 5.0  # seconds between tries while the store does not answer


class Exchange:
    """Settling and leasing are each under way at most once, and neither waits for the other: while the store works on
    one, the jobs that the other brought are run.

    While the store is away outcomes stay in memory. ``halt`` is called when it is damaged.
    """

    def __init__(
        self,
        outbox: Outbox,
        intake: Intake,
        slots: Slots,
        vitals: Vitals,
        halt: Callable[[str], None],
        force: asyncio.Event,
        bell: asyncio.Event,
    ) -> None:
        self._outbox = outbox
        self._intake = intake
        self._slots = slots
        self._vitals = vitals
        self._halt = halt
        self._force = force
        self._bell = bell
        self._settling: asyncio.Task[None] | None = None
        self._leasing: asyncio.Task[None] | None = None
        self._failures = 0
        self.damaged = False
        self.ending = False  # nothing more is leased once the answer under way is there

    @property
    def leasing(self) -> bool:
        return self._leasing is not None

    @property
    def owed(self) -> bool:
        """Whether there is something to tell the store, or something it has to tell us."""
        return bool(self._outbox) or self._leasing is not None

    async def once(self, wanted: int) -> None:
        """Have outcomes written and new jobs taken, each again and again while there is more; return when one ends."""
        if self._settling is None and self._outbox:
            self._settling = asyncio.create_task(self._settle())
        if self._leasing is None and wanted:
            self._leasing = asyncio.create_task(self._lease(wanted))
        await self._news()
        if (settling := self._settling) is not None and settling.done():
            self._settling = None
            await self._end(settling)
        if (leasing := self._leasing) is not None and leasing.done():
            self._leasing = None
            await self._end(leasing)

    def close(self) -> None:
        """Wait for no answer any more."""
        for task in (self._settling, self._leasing):
            if task is not None:
                task.cancel()

    async def _settle(self) -> None:
        # In a loop of its own: to go back to the worker's would mean to wait behind all jobs that are ready to run.
        while self._outbox:
            self._slots.settled(await self._outbox.send())
            self._failures = 0
            self._intake.made_room()

    async def _lease(self, wanted: int) -> None:
        while wanted and not self.ending:
            await self._intake.lease(wanted)
            self._failures = 0
            self._vitals.consuming()
            wanted = self._slots.room() if self._intake.hungry else 0

    async def _news(self) -> None:
        """Until an answer is there; or, if nothing is being written, until there is something to write."""
        answers: set[asyncio.Future[Any]] = {
            task for task in (self._settling, self._leasing) if task is not None
        }
        if not answers:
            return
        ringing = asyncio.create_task(self._bell.wait()) if self._settling is None else None
        try:
            await asyncio.wait(
                answers | {ringing} if ringing else answers, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if ringing is not None:
                ringing.cancel()

    async def _end(self, task: asyncio.Task[None]) -> None:
        if (error := task.exception()) is not None:
            await self.stumble(error)

    async def stumble(self, error: BaseException) -> None:
        """The store failed us: wait a while before the next try, a little longer each time."""
        if isinstance(error, StoreDamaged):
            self.damaged = True
            self._halt(str(error))
            return
        if not isinstance(error, StoreError):
            raise error
        pause = min(0.1 * 2**self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311
        self._failures = min(self._failures + 1, 10)
        log.warning("the store does not answer, will try again in %.1f s: %s", pause, error)
        if self._force.is_set():
            await asyncio.sleep(pause)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._force.wait(), pause)


async def opened(store: Callable[[], Awaitable[Store]], stopping: Callable[[], bool]) -> Store:
    """The store, as soon as it can be opened; who is to stop does not wait for it."""
    pause = 0.2
    while True:
        try:
            return await store()
        except StoreUnavailable as error:
            if stopping():
                raise
            log.warning("the store does not answer, will try again in %.1f s: %s", pause, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
