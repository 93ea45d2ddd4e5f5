"""Slots: start jobs that are held, as many at a time as the worker may, and end each of them in an outcome."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unstuck.app.handler import Handler
from unstuck.app.task import Task
from unstuck.config.policy import Policy
from unstuck.protocol.classify import failure
from unstuck.protocol.errors import StoreError
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Verdict
from unstuck.protocol.outcome import Outcome, released
from unstuck.protocol.retry import fate
from unstuck.worker.execute import Runtime, perform, perform_batch
from unstuck.worker.heartbeat import Heartbeat
from unstuck.worker.held_lease import HELD, HeldLease
from unstuck.worker.isolation.parent import CANCEL_PATIENCE
from unstuck.worker.outbox import Outbox
from unstuck.worker.prefetch import IN_ONE_CALL, Ahead
from unstuck.worker.runners import isolated

log = logging.getLogger("unstuck.worker")

AT_ONCE = 25  # jobs that begin in one turn of the event loop: what waits for an answer of the store has its turn soon
STOPPED = "the worker stopped"


class Slots:
    """Runs ``size`` jobs (or batches) at a time, and ``most`` in all. Their outcomes go into the outbox, and ``wakeup`` is set.

    ``failed`` is called with each outcome of an attempt that did not succeed, before the next job is started.
    """

    def __init__(
        self,
        size: int,
        most: int | None,
        tasks: Mapping[str, Task[Any, Any]],
        runtime: Runtime,
        heartbeat: Heartbeat,
        outbox: Outbox,
        failed: Callable[[Outcome], None],
        wakeup: asyncio.Event,
    ) -> None:
        self._size = size
        self._left = sys.maxsize if most is None else most  # jobs that may be started
        self._tasks = tasks
        self._runtime = runtime
        self._runners = runtime.runners
        self._limits = runtime.limits
        self._held = runtime.held
        self._heartbeat = heartbeat
        self._outbox = outbox
        self._failed = failed
        self._wakeup = wakeup
        self._ahead = Ahead()
        self._closed = False
        self._scheduled = 0  # jobs whose task has not begun yet
        self.running = 0

    @property
    def free(self) -> int:
        """Slots that no job has, and no thread that is still busy with a job nobody waits for any more."""
        return max(0, self._size - self.running - self._runners.abandoned)

    @property
    def spent(self) -> bool:
        """Whether it has started all that it may."""
        return self._left <= 0

    @property
    def left(self) -> int:
        """How many jobs may be leased at most: it never holds more than it may start."""
        return max(0, self._left - len(self._held.waiting))

    def room(self, batch: int = 1) -> int:
        """How many jobs to ask for: what fits into free slots, and what the last moments consumed."""
        ahead = self._ahead.jobs()
        waiting = len(self._held.waiting)
        if self._closed:
            return 0
        if self.free == 0 and waiting > ahead * 3 // 4:
            return 0
        return min(max(0, self.free * batch + min(ahead - waiting, IN_ONE_CALL)), self.left)

    def take(self, jobs: Sequence[Job], policies: Mapping[str, Policy], sent: float) -> None:
        """Hold jobs that were leased by a call sent at that moment, and start what there is room for."""
        rated = self._limits.buckets
        self._held.take(jobs, policies, sent, first=rated, listener=self._heartbeat.updated)
        self.start()
        for queue in rated:
            self._held.give_back_queue(queue)

    def start(self) -> None:
        """Start what there is room for; once closed, give back what came since."""
        held = self._held
        if self._closed:
            held.give_back_waiting(STOPPED)
        if not (waiting := held.waiting):
            return
        free, create_task = self.free, asyncio.get_running_loop().create_task
        rated = self._limits.buckets
        # One with a token does not wait for its turn: the token could get too old, and what waits longer is given back.
        while waiting and free and (self._scheduled < AT_ONCE or waiting[0].job.queue in rated):
            first = waiting.popleft()
            if first.ended:  # given back by the watch, while the loop was blocked
                continue
            queue, permit = first.job.queue, None
            if self._limits.closed(queue) or (queue in rated and (permit := self._limits.use(queue)) is None):
                waiting.appendleft(first)
                held.give_back_queue(queue)
                waiting = held.waiting
                continue
            task = self._tasks.get(first.job.task)
            handler = task.handler if task else None
            group = self._batch(handler, first) if handler is not None and handler.batch else [first]
            running = create_task(self._run(handler, group))
            for one in group:
                one.running = running
                one.context.permit = permit
            self.running += 1
            self._left -= len(group)
            self._scheduled += 1
            free -= 1

    def share(self) -> None:
        """Give back what was leased ahead and has waited for too long, and lease less ahead for a while."""
        if self._held.give_back_slow():
            self._ahead.nothing()
        if self._held.give_back_slow_again():
            self._ahead.rest()

    def close(self, why: str = STOPPED) -> None:
        """Start nothing more, and give back what has not been started."""
        self._held.give_back_waiting(why)
        self._closed = True

    async def cancel(self) -> int:
        """End what still runs and give it back; returns how many handlers did not end."""
        running = {held.running: held for held in self._held.all() if held.running and not held.ended}
        for held in self._held.all():
            held.context.cancelled = True
        for task, held in running.items():
            if held.begun:
                task.cancel()
            else:
                self._give_back_unbegun(task)
        if not running:
            return self._runners.abandoned
        log.warning("cancelled %d jobs that did not end in time: they are given back", len(running))
        _, stuck = await asyncio.wait(running, timeout=CANCEL_PATIENCE)
        self._held.give_back([held for held in self._held.all() if held.running in stuck], STOPPED)
        return len(stuck) + self._runners.abandoned

    def _give_back_unbegun(self, task: asyncio.Task[None]) -> None:
        mine = [held for held in self._held.all() if held.running is task]
        self._held.give_back(mine, STOPPED)
        for held in mine:
            held.verdict = Verdict.LOST  # by our own decision: it does nothing when it begins

    def _batch(self, handler: Handler, first: HeldLease) -> list[HeldLease]:
        """The jobs that run together with this one: as many as there are and fit."""
        if isolated(handler, first.context):
            return [first]
        alike = first.job.queue, first.job.task  # of one queue: its rate and its policy hold for all of them
        others = [
            held
            for held in self._held.waiting
            if (held.job.queue, held.job.task) == alike and not held.job.crashes and not held.ended
        ][: handler.batch - 1]
        for held in others:
            self._held.waiting.remove(held)
        return [first, *others]

    async def _run(self, handler: Handler | None, group: list[HeldLease]) -> None:
        """Carry jobs through. Whatever happens in here ends in outcomes, or they would hang."""
        ours = group
        outcomes: Sequence[Outcome] = ()
        sure, now = True, time.monotonic()
        for held in group:
            held.begun = True
            sure = sure and held.verdict is HELD and now <= held.trusted_until
        self._scheduled -= 1
        self._start_more()
        try:
            if not sure:
                ours = await self._still_ours(group, now)
            ours = [held for held in ours if held.claim()]
            if len(ours) == 1:
                [held] = ours
                held.on_loop = (
                    handler is not None and handler.is_async and not isolated(handler, held.context)
                )
                outcomes = [await perform(handler, held.context, held.policy, self._runtime)]
            elif ours:
                assert handler is not None
                for held in ours:
                    held.on_loop = handler.is_async
                contexts = tuple([held.context for held in ours])
                outcomes = await perform_batch(handler, contexts, ours[0].policy, self._runtime)
        except BaseException as error:
            outcomes = [self._unfinished(held, error) for held in ours]
            if any(outcome.failure for outcome in outcomes):
                log.exception("job %s could not be carried through", group[0].job.id)
        finally:
            if len(ours) < len(group):
                self._held.forget([held.lease for held in group if held not in ours and not held.ended])
            self._ended(ours, outcomes)

    def _unfinished(self, held: HeldLease, error: BaseException) -> Outcome:
        """The outcome of a job that could not be carried through."""
        if isinstance(error, asyncio.CancelledError) and held.context.cancelled:
            return released(held.lease, why=STOPPED)
        if isinstance(error, StoreError):
            return released(held.lease, why=f"the lease could not be confirmed: {error}")
        why = failure(error, attempt=held.job.attempts, worker=self._held.worker)
        return fate(held.job, why)

    async def _still_ours(self, group: Sequence[HeldLease], now: float) -> list[HeldLease]:
        if any(now > held.trusted_until for held in group):
            await self._heartbeat.confirm()
        return [held for held in group if held.verdict is HELD]

    def _start_more(self) -> None:
        """Unless some have yet to begin: the last of them does it for all."""
        if not self._scheduled:
            self.start()

    def _ended(self, group: Sequence[HeldLease], outcomes: Sequence[Outcome]) -> None:
        self.running -= 1
        self._ahead.consumed(len(group))
        self._wakeup.set()
        failures: list[Outcome] = []
        for held, outcome in zip(group, outcomes, strict=True):
            if held.ended:  # given back already, because it did not end when it was cancelled
                continue
            if held.verdict is HELD:
                held.end()
                self._outbox.add(outcome)
            else:
                self._held.forget([held.lease])
            if outcome.failure is not None:
                failures.append(outcome)
        for outcome in failures:
            self._failed(outcome)
        self._start_more()
