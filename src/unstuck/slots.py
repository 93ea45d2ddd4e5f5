"""Slots: the jobs a worker has in its hands, those that run and those that wait for a free place."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from unstuck.alerts import tell_alert
from unstuck.classify import failure
from unstuck.errors import StoreError
from unstuck.handler import Handler
from unstuck.held import Held
from unstuck.limits import Limits
from unstuck.model import Job, Lease, Outcome, Settled, Verdict, failed, released
from unstuck.outbox import Outbox
from unstuck.perform import Ground, perform
from unstuck.policy import Policy
from unstuck.prefetch import Ahead
from unstuck.runners import isolated

log = logging.getLogger("unstuck.worker")

HOARD = 1.0  # seconds that a job leased ahead may wait for its start
DEAF = 2.0  # seconds that a cancelled handler has to end
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
        handler: Callable[[str], Handler | None],
        confirm: Callable[[], Awaitable[None]],
        said: Callable[[str], None],
        ended: Callable[[Sequence[Outcome]], None],
        occupied: Callable[[], int],
        bell: asyncio.Event,
    ) -> None:
        self._size = size
        self._ground = ground
        self._outbox = outbox
        self._limits = limits
        self._handler = handler
        self._confirm = confirm
        self._said = said
        self._tell_ended = ended
        self._occupied = occupied
        self._bell = bell
        self._waiting: deque[Held] = deque()
        self._ahead = Ahead()
        self._closed = False
        self.held: dict[Lease, Held] = {}
        self.running = 0

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def free(self) -> int:
        """Places that nobody has, not even a thread that nobody waits for any more."""
        return max(0, self._size - self.running - self._occupied())

    def room(self) -> int:
        """How many jobs to ask for: free slots, and what the last moments consumed."""
        ahead = self._ahead.jobs()
        waiting = len(self._waiting)
        if self.free == 0 and waiting > ahead // 2:
            return 0
        return max(0, self.free + ahead - waiting)

    def take(self, jobs: Iterable[Job], policies: Mapping[str, Policy], sent: float) -> None:
        """Hold jobs that were leased by a call sent at that moment."""
        first: list[Held] = []
        for job in jobs:
            held = Held(job, policies[job.queue], sent)
            held.context.listener = lambda word, _: self._said(word)
            self.held[job.lease] = held
            (first if self._limits.rated(job.queue) else self._waiting).append(held)
        self._waiting.extendleft(reversed(first))  # their tokens do not wait

    def start(self) -> None:
        while self._waiting and self.free and not self._closed:
            held = self._waiting.popleft()
            queue = held.job.queue
            if self._limits.closed(queue) or (self._limits.rated(queue) and not self._limits.use(queue)):
                self._waiting.appendleft(held)
                self.refuse(queue)
                continue
            group = self._group(held)
            running = asyncio.create_task(self._run(group))
            for one in group:
                one.running = running
            self.running += 1

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
            self.held.pop(held.job.lease, None)
        elif held.running is not None and held.begun:  # if it has not, it will see the verdict when it begins
            batch = [one for one in self.held.values() if one.running is held.running]
            if all(one.verdict is not Verdict.HELD for one in batch):  # else the rest of a batch goes on
                held.running.cancel()
        self._bell.set()

    def settled(self, answers: Iterable[tuple[Outcome, Settled]]) -> None:
        for outcome, answer in answers:
            self.held.pop(outcome.lease, None)
            if answer is Settled.LOST:
                told = {"jobId": outcome.lease.id, "workerId": self._ground.worker, "outcome": outcome.event}
                log.warning(
                    "the lease of job %s was lost: its outcome is refused", outcome.lease.id, extra=told
                )
            elif answer is Settled.APPLIED:
                tell_alert(outcome)

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

    def _group(self, first: Held) -> list[Held]:
        """The jobs that run together with this one: of a batch task, as many as there are and fit."""
        handler = self._handler(first.job.task)
        if handler is None or not handler.batch or isolated(handler, (first.context,)):
            return [first]
        alike = (
            first.job.queue,
            first.job.task,
        )  # of one queue, because its rate and its policy hold for all
        others = [
            held
            for held in self._waiting
            if (held.job.queue, held.job.task) == alike and not held.job.crashes
        ][: handler.batch - 1]
        for held in others:
            self._waiting.remove(held)
        return [first, *others]

    async def _run(self, group: list[Held]) -> None:
        """Carry jobs through. Whatever happens here must end in outcomes, or they would hang."""
        outcomes: list[Outcome] = []
        for held in group:
            held.begun = True
        try:
            if time.monotonic() > min(held.trusted_until for held in group):
                await self._confirm()
            ours = [held for held in group if held.verdict is Verdict.HELD]
            if ours:
                handler = self._handler(ours[0].job.task)
                contexts = tuple(held.context for held in ours)
                for held in ours:
                    held.on_loop = bool(handler and handler.is_async and not isolated(handler, contexts))
                outcomes = await perform(handler, contexts, ours[0].policy, self._ground)
        except asyncio.CancelledError:
            outcomes = [released(held.job.lease, why=STOPPED) for held in group]
        except StoreError as error:
            why = f"the lease could not be confirmed: {error}"
            outcomes = [released(held.job.lease, why=why) for held in group]
        except Exception as error:
            log.exception("job %s could not be carried through", group[0].job.id)
            why_ = failure(error, attempt=group[0].job.attempts, worker=self._ground.worker)
            outcomes = [failed(held.job.lease, why_) for held in group]
        finally:
            self._ended(group, outcomes)

    def _ended(self, group: Sequence[Held], outcomes: Sequence[Outcome]) -> None:
        self.running -= 1
        by_lease = {outcome.lease: outcome for outcome in outcomes}
        for held in group:
            self._ahead.consumed()
            if held.ended:  # given back already, because it did not listen
                continue
            if (outcome := by_lease.get(held.job.lease)) is not None and held.verdict is Verdict.HELD:
                held.ended = True
                self._outbox.add(outcome)
            else:
                self.held.pop(held.job.lease, None)
        self._tell_ended(outcomes)
        self.start()
        self._bell.set()

    def _give_back(self, jobs: Iterable[Held], why: str) -> None:
        for held in jobs:
            if not held.ended:
                held.ended = True
                self._outbox.add(released(held.job.lease, why=why))
