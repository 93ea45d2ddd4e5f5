"""StoreIO: a worker's calls to the store. It writes outcomes and leases jobs, again and again until the store answers."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from unstuck.background import end, happens
from unstuck.operations.health import WorkerHealth
from unstuck.protocol.errors import StoreDamaged, StoreError
from unstuck.protocol.job import Ending
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.protocol.retry import parent_fate
from unstuck.recovery.reports import log_alert
from unstuck.worker.heartbeat import Heartbeat
from unstuck.worker.held_leases import HeldLeases
from unstuck.worker.leasing import Leasing
from unstuck.worker.outbox import Outbox

log = logging.getLogger("unstuck.worker")

LONGEST_PAUSE = 5.0  # seconds between tries while the store does not answer
UNFINISHED = (Settled.CHILDREN_PENDING, Settled.CHILDREN_FAILED)


class StoreIO:
    """Settling and leasing are each under way at most once, and neither waits for the other: while the store works on
    one, the jobs that the other brought are run.

    While the store is away outcomes stay in the outbox, and are sent as soon as a heartbeat has got through: until then
    a death of this worker would have their jobs run twice. ``halt`` is called when the store is damaged.
    """

    def __init__(
        self,
        outbox: Outbox,
        held: HeldLeases,
        leasing: Leasing,
        heartbeat: Heartbeat,
        health: WorkerHealth,
        halt: Callable[[str], None],
        wakeup: asyncio.Event,
    ) -> None:
        self._outbox = outbox
        self._held = held
        self._leasing = leasing
        self._health = health
        self._halt = halt
        self._answers_again = heartbeat.answers_again
        self._wakeup = wakeup
        self._settle_call: asyncio.Task[None] | None = None
        self._lease_call: asyncio.Task[None] | None = None
        self._failures = 0
        self._ending = False  # nothing more is leased once the answer under way is there
        self._interrupted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.damaged = False

    def wanted(self) -> int:
        """How many jobs to ask for now; none while such a call is under way."""
        return 0 if self._lease_call is not None else self._leasing.wanted()

    @property
    def owed(self) -> bool:
        """Whether there are outcomes to write, or a lease call whose answer is to come."""
        return bool(self._outbox) or self._lease_call is not None

    def stop(self) -> None:
        """Lease nothing more, and interrupt the wait for an answer, so that the caller can see what is wanted now."""
        self._ending = True
        self._answers_again.set()
        if not self._interrupted.done():
            self._interrupted.set_result(None)

    async def once(self, wanted: int, seconds: float = math.inf) -> None:
        """Have outcomes written and new jobs taken, each again and again while there is more; return when one ends,
        or after so many seconds."""
        until = time.monotonic() + seconds
        if self._settle_call is None and self._outbox:
            self._settle_call = asyncio.create_task(self._settle())
        if self._lease_call is None and wanted:
            self._lease_call = asyncio.create_task(self._lease(wanted))
        await self._news(seconds)
        if (settling := self._settle_call) is not None and settling.done():
            self._settle_call = None
            await self._end(settling, until)
        if (leasing := self._lease_call) is not None and leasing.done():
            self._lease_call = None
            await self._end(leasing, until)

    async def close(self) -> int:
        """Wait for no answer any more; returns how many calls did not end."""
        return await end((self._settle_call, self._lease_call))

    async def _settle(self) -> None:
        # In a loop of its own: to go back to the worker's would mean to wait behind all jobs that are ready to run.
        while self._outbox:
            self._settled(await self._outbox.send())
            self._failures = 0
            self._leasing.made_room()

    def _settled(self, answers: Sequence[tuple[Outcome, Settled]]) -> None:
        """Let go of the leases whose outcomes the store has answered to."""
        completed, lost, succeeded = Ending.COMPLETED, Settled.LOST, 0
        forgotten = self._held.forget([outcome.lease for outcome, _ in answers])
        for (outcome, answer), held in zip(answers, forgotten, strict=True):
            if answer is lost:
                facts = {"jobId": outcome.lease.id, "workerId": self._held.worker, "outcome": outcome.event}
                log.warning(
                    "the lease of job %s was lost: its outcome is refused", outcome.lease.id, extra=facts
                )
            elif answer in UNFINISHED:
                if held is not None:
                    self._held.hold(held)
                    self._not_completed(parent_fate(held.job, answer))
            elif outcome.ending is completed:
                succeeded += 1
            elif answer is Settled.APPLIED:
                log_alert(outcome)
        if succeeded:
            self._health.success(succeeded)

    def _not_completed(self, outcome: Outcome) -> None:
        assert outcome.failure is not None
        log.warning("job %s is not completed: %s", outcome.lease.id, outcome.failure.message)
        self._outbox.add(outcome)
        self._health.failure(outcome.failure.code)

    async def _lease(self, wanted: int) -> None:
        while wanted and not self._ending:
            await self._leasing.lease(wanted)
            self._failures = 0
            self._health.consuming()
            wanted = self._leasing.wanted()

    async def _news(self, seconds: float) -> None:
        """Until an answer is there; or, if nothing is being written, until there is something to write."""
        calls = [task for task in (self._settle_call, self._lease_call) if task is not None]
        if not calls:
            return
        if self._interrupted.done():
            self._interrupted = asyncio.get_running_loop().create_future()
        answers: set[asyncio.Future[Any]] = {*calls, self._interrupted}
        woken = asyncio.create_task(self._wakeup.wait()) if self._settle_call is None else None
        try:
            await asyncio.wait(
                answers | {woken} if woken else answers,
                timeout=None if seconds == math.inf else seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            if woken is not None:
                woken.cancel()

    async def _end(self, task: asyncio.Task[None], until: float) -> None:
        if (error := task.exception()) is not None:
            await self.back_off(error, until)

    async def back_off(self, error: BaseException, until: float = math.inf) -> None:
        """The store failed us: wait a while before the next try, a little longer each time, but not beyond ``until``."""
        if isinstance(error, StoreDamaged):
            self.damaged = True
            self._halt(str(error))
            return
        if not isinstance(error, StoreError):
            raise error
        pause = min(0.1 * 2**self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311
        self._failures = min(self._failures + 1, 10)
        log.warning("the store does not answer, will try again in %.1f s: %s", pause, error)
        if await happens(self._answers_again, min(pause, max(0.0, until - time.monotonic()))):
            self._answers_again.clear()
            self._failures = 0  # some connections may still be broken, and each costs a try
