"""Slots: the jobs a worker has in its hands, those that run and those that wait for a free place."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from unstuck.alerts import tell_alert
from unstuck.classifier import failure
from unstuck.errors import StoreError
from unstuck.handler import Handler
from unstuck.health import Vitals
from unstuck.held import HELD, Held
from unstuck.isolate import DEAF
from unstuck.limits import Limits
from unstuck.model import Job, Lease, Outcome, Settled, Verdict, Word, released
from unstuck.outbox import Outbox
from unstuck.perform import Ground, perform, perform_batch
from unstuck.policy import Policy
from unstuck.prefetch import IN_ONE_CALL, Ahead
from unstuck.retry import fate
from unstuck.runners import isolated

log = logging.getLogger("unstuck.worker")

HOARD = 1.0  # seconds that a job leased ahead may wait for its start
AT_ONCE = 25  # jobs that begin in one turn of the event loop: who waits for an answer of the store has its turn soon
STOPPED = "the worker stopped"
NO_TOKEN = "no token was left"  # noqa: S105 - not that kind of token


class Slots:
    """Runs ``size`` jobs (or batches) at a time. What becomes of them goes into the outbox, and the bell rings."""

    def __init__(
        self,
        *,
        size: int,
        ground: Ground,
        outbox: Outbox,
        limits: Limits,
        vitals: Vitals,
        handler: Callable[[str], Handler | None],
        confirm: Callable[[], Awaitable[None]],
        said: Callable[[str, Any], None],
        failed: Callable[[Outcome], None],
        occupied: Callable[[], int],
        bell: asyncio.Event,
    ) -> None:
        self._size = size
        self._ground = ground
        self._outbox = outbox
        self._limits = limits
        self._vitals = vitals
        self._handler = handler
        self._confirm = confirm
        self._said = said
        self._failed = failed
        self._occupied = occupied
        self._bell = bell
        self._waiting: deque[Held] = deque()
        self._ahead = Ahead()
        self._closed = False
        self.held: dict[Lease, Held] = {}
        self.running = 0
        self._scheduled = 0

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def free(self) -> int:
        """Places that nobody has, not even a thread that nobody waits for any more."""
        return max(0, self._size - self.running - self._occupied())

    def room(self, batch: int = 1) -> int:
        """How many jobs to ask for: what fits into free slots, and what the last moments consumed."""
        ahead = self._ahead.jobs()
        waiting = len(self._waiting)
        if self._closed:
            return 0
        if self.free == 0 and waiting > ahead * 3 // 4:
            return 0
        return max(0, self.free * batch + min(ahead - waiting, IN_ONE_CALL))

    def take(self, jobs: Iterable[Job], policies: Mapping[str, Policy], sent: float) -> None:
        """Hold jobs that were leased by a call sent at that moment."""
        first: list[Held] = []
        for job in jobs:
            held = Held(job, policies[job.queue], sent)
            held.context.listener = self._said
            self.held[held.lease] = held
            (first if job.queue in self._limits.buckets else self._waiting).append(held)
        self._waiting.extendleft(reversed(first))  # their tokens do not wait
        if self._closed:
            self.close()

    def start(self) -> None:
        if not self._waiting or self._closed:
            return
        free, create_task = self.free, asyncio.get_running_loop().create_task
        while self._waiting and free and self._scheduled < AT_ONCE:
            held = self._waiting.popleft()
            queue = held.job.queue
            if self._limits.closed(queue) or (queue in self._limits.buckets and not self._limits.use(queue)):
                self._waiting.appendleft(held)
                self.refuse(queue)
                continue
            handler = self._handler(held.job.task)
            group = self._batch(handler, held) if handler is not None and handler.batch else [held]
            running = create_task(self._run(handler, group))
            for one in group:
                one.running = running
            self.running += 1
            self._scheduled += 1
            free -= 1

    def refuse(self, queue: str) -> None:
        """Give back, together, all of a queue that has not been started: there is no token for it."""
        mine = [held for held in self._waiting if held.job.queue == queue]
        self._waiting = deque(held for held in self._waiting if held.job.queue != queue)
        self._give_back(mine, NO_TOKEN)
        if mine:
            log.info("gave back %d jobs of %s: %s", len(mine), queue, NO_TOKEN)

    def drop(self, lease: Lease) -> None:
        """Forget a lease that is not ours any more, before it was started."""
        held = self.held.pop(lease)
        self._waiting.remove(held)

    def share(self) -> None:
        """Give back what was leased ahead if long jobs have come in between: others may have room for it."""
        if self._waiting and self._waiting[0].waited > HOARD:
            self._give_back(self._waiting, "others may be faster")
            self._waiting.clear()
            self._ahead.nothing()

    def lose(self, held: Held, verdict: Verdict) -> None:
        """Somebody else has the job now, or nobody wants it any more: stop working on it."""
        told = {"jobId": held.job.id, "workerId": self._ground.worker}
        log.warning("job %s: the lease is %s", held.job.id, verdict, extra=told)
        held.verdict = verdict
        held.context.cancelled = True
        if held in self._waiting:
            self._waiting.remove(held)
            self.held.pop(held.lease, None)
        elif held.running is not None and held.begun and not self._wanted(held.running):
            held.running.cancel()  # if it has not begun, it will see the verdict when it does
        self._bell.set()

    def _wanted(self, running: asyncio.Task[None]) -> bool:
        """Whether any job of a batch is still ours: then it goes on, and only the lost outcomes are refused."""
        return any(held.running is running and held.verdict is HELD for held in self.held.values())

    def settled(self, answers: Iterable[tuple[Outcome, Settled]]) -> None:
        completed, lost, succeeded = Word.COMPLETED, Settled.LOST, 0
        for outcome, answer in answers:
            self.held.pop(outcome.lease, None)
            if answer is lost:
                told = {"jobId": outcome.lease.id, "workerId": self._ground.worker, "outcome": outcome.event}
                log.warning(
                    "the lease of job %s was lost: its outcome is refused", outcome.lease.id, extra=told
                )
            elif outcome.word is completed:
                succeeded += 1
            elif answer is Settled.APPLIED:
                tell_alert(outcome)
        if succeeded:
            self._vitals.success(succeeded)

    def close(self, why: str = STOPPED) -> None:
        """Start nothing more, and give back what has not been started."""
        self._closed = True
        self._give_back(self._waiting, why)
        self._waiting.clear()

    async def cancel(self) -> int:
        """End what still runs and give it back; answers how many handlers do not listen."""
        running = {held.running: held for held in self.held.values() if held.running and not held.ended}
        for held in self.held.values():
            held.context.cancelled = True
        for task, held in running.items():
            if held.begun:
                task.cancel()
            else:
                self._disown(task)
        if not running:
            return self._occupied()
        log.warning("cancelled %d jobs that did not end in time: they are given back", len(running))
        _, deaf = await asyncio.wait(running, timeout=DEAF)
        self._give_back([held for held in self.held.values() if held.running in deaf], STOPPED)
        return len(deaf) + self._occupied()

    def _disown(self, task: asyncio.Task[None]) -> None:
        mine = [held for held in self.held.values() if held.running is task]
        self._give_back(mine, STOPPED)
        for held in mine:
            held.verdict = Verdict.LOST  # by our own decision: it does nothing when it begins

    def _batch(self, handler: Handler, first: Held) -> list[Held]:
        """The jobs that run together with this one: as many as there are and fit."""
        if isolated(handler, first.context):
            return [first]
        alike = first.job.queue, first.job.task  # of one queue: its rate and its policy hold for all of them
        others = [
            held
            for held in self._waiting
            if (held.job.queue, held.job.task) == alike and not held.job.crashes
        ][: handler.batch - 1]
        for held in others:
            self._waiting.remove(held)
        return [first, *others]

    async def _run(self, handler: Handler | None, group: list[Held]) -> None:
        """Carry jobs through. Whatever happens here must end in outcomes, or they would hang."""
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
            if len(ours) == 1:
                [held] = ours
                held.on_loop = (
                    handler is not None and handler.is_async and not isolated(handler, held.context)
                )
                outcomes = [await perform(handler, held.context, held.policy, self._ground)]
            elif ours:
                assert handler is not None
                for held in ours:
                    held.on_loop = handler.is_async
                contexts = tuple([held.context for held in ours])
                outcomes = await perform_batch(handler, contexts, ours[0].policy, self._ground)
        except asyncio.CancelledError:
            outcomes = [released(held.lease, why=STOPPED) for held in ours]
        except StoreError as error:
            told = f"the lease could not be confirmed: {error}"
            outcomes = [released(held.lease, why=told) for held in ours]
        except Exception as error:
            log.exception("job %s could not be carried through", group[0].job.id)
            why = failure(error, attempt=group[0].job.attempts, worker=self._ground.worker)
            outcomes = [fate(held.job, why) for held in ours]
        finally:
            if len(ours) < len(group):
                for held in group:
                    if held not in ours:
                        self.held.pop(held.lease, None)
            self._ended(ours, outcomes)

    async def _still_ours(self, group: Sequence[Held], now: float) -> list[Held]:
        if any(now > held.trusted_until for held in group):
            await self._confirm()
        return [held for held in group if held.verdict is HELD]

    def _start_more(self) -> None:
        """Unless some have yet to begin: the last of them does it for all."""
        if not self._scheduled:
            self.start()

    def _ended(self, group: Sequence[Held], outcomes: Sequence[Outcome]) -> None:
        self.running -= 1
        self._ahead.consumed(len(group))
        for held, outcome in zip(group, outcomes, strict=True):
            if held.ended:  # given back already, because it did not listen
                continue
            if held.verdict is HELD:
                held.ended = True
                self._outbox.add(outcome)
            else:
                self.held.pop(held.lease, None)
            if outcome.failure is not None:
                self._failed(outcome)
        self._start_more()
        self._bell.set()

    def _give_back(self, jobs: Iterable[Held], why: str) -> None:
        for held in jobs:
            if not held.ended:
                held.ended = True
                self._outbox.add(released(held.lease, why=why))
