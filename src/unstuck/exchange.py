"""Exchange: what a worker tells the store and asks of it, together, again and again until it answers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress

from unstuck.errors import StoreDamaged, StoreError
from unstuck.health import Vitals
from unstuck.intake import Intake
from unstuck.outbox import Outbox
from unstuck.slots import Slots

log = logging.getLogger("unstuck.worker")

LONGEST_PAUSE = 5.0  # seconds between tries while the store does not answer


class Exchange:
    """While the store is away outcomes stay in memory. ``halt`` is called when it is damaged."""

    def __init__(
        self,
        outbox: Outbox,
        intake: Intake,
        slots: Slots,
        vitals: Vitals,
        halt: Callable[[str], None],
        force: asyncio.Event,
    ) -> None:
        self._outbox = outbox
        self._intake = intake
        self._slots = slots
        self._vitals = vitals
        self._halt = halt
        self._force = force
        self._failures = 0
        self.damaged = False

    async def once(self, wanted: int) -> None:
        """Write all outcomes gathered since the last time and take new jobs."""
        settled, leased = await asyncio.gather(
            self._outbox.send(), self._intake.lease(wanted), return_exceptions=True
        )
        if not isinstance(settled, BaseException):
            self._slots.settled(settled)
            if settled:
                self._intake.made_room()
        for answer in (settled, leased):
            if isinstance(answer, BaseException):
                await self.stumble(answer)
                return
        self._failures = 0
        if wanted:
            self._vitals.consuming()

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
