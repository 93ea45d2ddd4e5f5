"""HeldLeases: all leases that a worker holds, of jobs that run and of jobs that wait for their start."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from unstuck.config.policy import Policy
from unstuck.protocol.job import Job, Lease
from unstuck.protocol.leases import Verdict
from unstuck.protocol.outcome import released
from unstuck.worker.held_lease import HELD, HeldLease
from unstuck.worker.outbox import Outbox

log = logging.getLogger("unstuck.worker")

HOARD = 1.0  # seconds that a job leased ahead may wait for its start
SOON = 0.5  # the same of one that was given back or recovered before: it has waited already
REMEMBERED = 10_000  # leases that were given back before their answer came
NO_TOKEN = "no token was left"  # noqa: S105 - not that kind of token
TOO_SLOW = "others may be faster"


class HeldLeases:
    """The one place that knows them: the slots start and end them, the heartbeat renews them, the watch gives back
    what a blocked event loop cannot start.

    It belongs to the worker's event loop; only :meth:`all`, :meth:`unknown` and :meth:`disown` may be called from
    other threads. A lease leaves it when the store has answered to its outcome, or when it is lost.
    """

    def __init__(self, worker: str, outbox: Outbox, wakeup: asyncio.Event) -> None:
        self.worker = worker
        self._outbox = outbox
        self._wakeup = wakeup
        self._held: dict[Lease, HeldLease] = {}
        self.waiting: deque[HeldLease] = deque()  # in the order in which they are started
        self._again: deque[HeldLease] = (
            deque()
        )  # of those that wait, or did, the ones that were leased before
        self._disowned: set[Lease] = set()

    def __len__(self) -> int:
        return len(self._held)

    def all(self) -> list[HeldLease]:
        """All of them as they are now. May be called from any thread."""
        return list(self._held.values())

    def unknown(self, leases: Iterable[Lease]) -> set[Lease]:
        """Those of the leases that are not held here. May be called from any thread."""
        return {lease for lease in leases if lease not in self._held}

    def take(
        self,
        jobs: Sequence[Job],
        policies: Mapping[str, Policy],
        sent: float,
        *,
        first: Collection[str],
        listener: Callable[[str, Any], None],
    ) -> None:
        """Hold jobs that were leased by a call sent at that moment.

        Those of the queues in ``first`` are started first, because their tokens do not wait.
        """
        by_lease, waiting = self._held, self.waiting
        ahead: list[HeldLease] = []
        for job in jobs:
            held = HeldLease(job, policies[job.queue], sent)
            held.context.listener = listener
            by_lease[held.lease] = held
            if job.settled is not None:
                self._again.append(held)
            (ahead if job.queue in first else waiting).append(held)
        self.waiting.extendleft(reversed(ahead))
        if self._disowned:
            for job in jobs:
                if job.lease in self._disowned:  # its answer came so late that we have given it back
                    self.waiting.remove(self._held.pop(job.lease))

    def disown(self, leases: set[Lease]) -> list[Lease]:
        """Drop these leases when their answer comes after all; returns those whose answer has not come this moment.

        May be called from any thread.
        """
        if len(self._disowned) > REMEMBERED:
            self._disowned = set()
        self._disowned |= leases  # before the look below, because the loop looks in the other order
        return sorted(self.unknown(leases))

    def hold(self, held: HeldLease) -> None:
        """Hold a lease again that was forgotten, because another outcome of it is on its way."""
        self._held[held.lease] = held

    def forget(self, leases: Iterable[Lease]) -> list[HeldLease | None]:
        """The store has answered to their outcomes, or somebody else has them: nothing more is done about them here."""
        return [self._held.pop(lease, None) for lease in leases]

    def lose(self, held: HeldLease, verdict: Verdict) -> None:
        """Somebody else has the job now, or nobody wants it any more: stop working on it."""
        facts = {"jobId": held.job.id, "workerId": self.worker}
        log.warning("job %s: the lease is %s", held.job.id, verdict, extra=facts)
        held.verdict = verdict
        held.context.cancelled = True
        if held in self.waiting:
            self.waiting.remove(held)
            self.forget([held.lease])
        elif held.running is not None and held.begun and not self._wanted(held.running):
            held.running.cancel()  # if it has not begun, it will see the verdict when it does
        self._wakeup.set()

    def _wanted(self, running: asyncio.Task[None]) -> bool:
        """Whether any job of a batch is still ours: then it goes on, and only the lost outcomes are refused."""
        return any(held.running is running and held.verdict is HELD for held in self._held.values())

    @property
    def patience(self) -> float:
        """Seconds after which to look whether something has waited for too long."""
        return SOON if self._again else HOARD if self.waiting else math.inf

    def give_back(self, jobs: Iterable[HeldLease], why: str) -> None:
        """Give back those whose outcome is not on its way yet. They are held until the store has answered."""
        for held in jobs:
            if held.end():
                self._outbox.add(released(held.lease, why=why))

    def give_back_waiting(self, why: str) -> None:
        """Give back all that have not been started."""
        self.give_back(self.waiting, why)
        self.waiting.clear()

    def give_back_queue(self, queue: str) -> None:
        """Give back, together, all of a queue that have not been started: there is no token for them."""
        mine = [held for held in self.waiting if held.job.queue == queue]
        self.waiting = deque(held for held in self.waiting if held.job.queue != queue)
        self.give_back(mine, NO_TOKEN)
        if mine:
            log.info("gave back %d jobs of %s: %s", len(mine), queue, NO_TOKEN)

    def give_back_slow(self) -> bool:
        """Give back what was leased ahead if long jobs have come in between: others may have room for it."""
        if not self.waiting or self.waiting[0].waited <= HOARD:
            return False
        self.give_back_waiting(TOO_SLOW)
        return True

    def give_back_slow_again(self) -> bool:
        """The same, sooner, for jobs that have waited elsewhere before."""
        while self._again and not self._waits(self._again[0]):
            self._again.popleft()
        if not self._again or self._again[0].waited <= SOON:
            return False
        mine = [held for held in self._again if self._waits(held)]
        self._again.clear()
        self.give_back(mine, TOO_SLOW)
        self.waiting = deque(held for held in self.waiting if not held.ended)
        return True

    def _waits(self, held: HeldLease) -> bool:
        return held.running is None and not held.ended and held.lease in self._held

    def given_back(self, jobs: Iterable[HeldLease]) -> None:
        """Forget what the watch gave back while the loop was blocked."""
        self.forget([held.lease for held in jobs])
        self.waiting = deque(held for held in self.waiting if held.lease in self._held)
        self._wakeup.set()
