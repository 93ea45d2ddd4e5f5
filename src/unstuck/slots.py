"""Slots: the jobs a worker has in its hands, those that run and those that wait for a free place."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping

from unstuck.classify import failure
from unstuck.errors import StoreError
from unstuck.handler import Handler
from unstuck.model import Job, Lease, Outcome, Settled, Verdict, failed, released
from unstuck.outbox import Outbox
from unstuck.perform import perform
from unstuck.prefetch import Ahead
from unstuck.pulse import Held
from unstuck.runners import Threads, on_loop

log = logging.getLogger("unstuck.worker")

HOARD = 1.0  # seconds that a job leased ahead may wait for its start
DEAF = 2.0  # seconds that a cancelled handler has to end
STOPPED = "the worker stopped"


class Slots:
    """Runs ``size`` jobs at a time. Whatever becomes of a job goes into the outbox, and the bell rings."""

    def __init__(
        self,
        size: int,
        worker: str,
        outbox: Outbox,
        handler: Callable[[str], Handler | None],
        confirm: Callable[[], Awaitable[None]],
        bell: asyncio.Event,
    ) -> None:
        self._size = size
        self._worker = worker
        self._outbox = outbox
        self._handler = handler
        self._confirm = confirm
        self._bell = bell
        self._threads = Threads(size)
        self._waiting: deque[Held] = deque()
        self._ahead = Ahead()
        self._closed = False
        self.held: dict[Lease, Held] = {}
        self.running = 0

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def room(self) -> int:
        """How many jobs to ask for: free slots, and what the last moments consumed."""
        ahead = self._ahead.jobs()
        have = self.running + len(self._waiting)
        if have >= self._size and len(self._waiting) > ahead // 2:
            return 0
        return max(0, self._size + ahead - have)

    def take(self, jobs: Iterable[Job], seconds: Mapping[str, float], sent: float) -> None:
        """Hold jobs that were leased by a call sent at that moment."""
        for job in jobs:
            held = Held(job, seconds[job.queue], 0.0)
            held.trust(sent)
            self.held[job.lease] = held
            self._waiting.append(held)

    def start(self) -> None:
        while self._waiting and self.running < self._size and not self._closed:
            held = self._waiting.popleft()
            held.running = asyncio.create_task(self._run(held))
            self.running += 1

    def share(self) -> None:
        """Give back what was leased ahead if long jobs have come in between: others may have room for it."""
        if self._waiting and self._waiting[0].waited > HOARD:
            self._give_back(self._waiting, "others may be faster")
            self._waiting.clear()
            self._ahead.nothing()

    def lose(self, held: Held, verdict: Verdict) -> None:
        """Somebody else has the job now, or nobody wants it any more: stop working on it."""
        told = {"jobId": held.job.id, "workerId": self._worker}
        log.warning("job %s: the lease is %s", held.job.id, verdict, extra=told)
        held.verdict = verdict
        held.context.cancelled = True
        if held.running is not None:
            if held.begun:  # if not, it will see the verdict when it begins
                held.running.cancel()
        elif held in self._waiting:
            self._waiting.remove(held)
            self.held.pop(held.job.lease, None)
        self._bell.set()

    def settled(self, answers: Iterable[tuple[Outcome, Settled]]) -> None:
        for outcome, answer in answers:
            self.held.pop(outcome.lease, None)
            if answer is Settled.LOST:
                told = {"jobId": outcome.lease.id, "workerId": self._worker, "outcome": outcome.event}
                log.warning(
                    "the lease of job %s was lost: its outcome is refused", outcome.lease.id, extra=told
                )

    def close(self) -> None:
        """Start nothing more, and give back what has not been started."""
        self._closed = True
        self._give_back(self._waiting, STOPPED)
        self._waiting.clear()

    async def cancel(self) -> int:
        """End what still runs and give it back; answers how many handlers do not listen."""
        running = {held.running: held for held in self.held.values() if held.running and not held.ended}
        for task, held in running.items():
            held.context.cancelled = True
            if held.begun:
                task.cancel()
            else:
                held.verdict = Verdict.LOST  # by our own decision: it does nothing when it begins
                self._give_back([held], STOPPED)
        if not running:
            return 0
        log.warning("cancelled %d jobs that did not end in time: they are given back", len(running))
        _, deaf = await asyncio.wait(running, timeout=DEAF)
        self._give_back([running[task] for task in deaf], STOPPED)
        return len(deaf)

    def end(self) -> None:
        self._threads.close()

    async def _run(self, held: Held) -> None:
        """Carry one job through. Whatever happens here must end in an outcome, or the job would hang."""
        outcome: Outcome | None = None
        held.begun = True
        try:
            if time.monotonic() > held.trusted_until:
                await self._confirm()
            if held.verdict is Verdict.HELD:
                handler = self._handler(held.job.task)
                runner = on_loop if handler and handler.is_async else self._threads.run
                outcome = await perform(handler, held.context, runner, self._worker)
        except asyncio.CancelledError:
            if held.verdict is Verdict.HELD:
                outcome = released(held.job.lease, why=STOPPED)
        except StoreError as error:
            outcome = released(held.job.lease, why=f"the lease could not be confirmed: {error}")
        except Exception as error:
            log.exception("job %s could not be carried through", held.job.id, extra={"jobId": held.job.id})
            outcome = failed(held.job.lease, failure(error, attempt=held.job.attempts, worker=self._worker))
        finally:
            self._ended(held, outcome)

    def _ended(self, held: Held, outcome: Outcome | None) -> None:
        self.running -= 1
        self._ahead.consumed()
        if held.ended:  # given back already, because it did not listen
            return
        if outcome is not None and held.verdict is Verdict.HELD:
            held.ended = True
            self._outbox.add(outcome)
        else:
            self.held.pop(held.job.lease, None)
        self.start()
        self._bell.set()

    def _give_back(self, jobs: Iterable[Held], why: str) -> None:
        for held in jobs:
            held.ended = True
            self._outbox.add(released(held.job.lease, why=why))
