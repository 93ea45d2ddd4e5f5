"""Worker: settle what ended, lease for the room there is, start, sleep until something happens."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from unstuck.app import Unstuck
from unstuck.errors import StoreError, StoreUnavailable
from unstuck.ids import process_id
from unstuck.model import Job, Lease, Outcome, Settled, Verdict, released
from unstuck.model import Worker as Facts
from unstuck.outbox import Outbox
from unstuck.perform import perform
from unstuck.policy import number, whole
from unstuck.prefetch import Ahead
from unstuck.pulse import Held, Pulse
from unstuck.reaper import Reaper
from unstuck.runners import Threads, on_loop
from unstuck.store import Share, Store

log = logging.getLogger("unstuck.worker")

LOOK = 5.0  # seconds after which an idle worker asks for work even if nothing woke it
LONGEST_PAUSE = 5.0  # between tries while the store does not answer
FAREWELL = 10.0  # seconds for the last settle of a worker that ends


class Worker:
    """Runs the jobs of an app until stopped. Needs nothing but the store to agree with other workers.

    ``burst`` ends it when nothing is due any more. ``recovery`` is the reaper's interval, 0 switches it off.
    """

    def __init__(
        self,
        app: Unstuck,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int = 10,
        grace: float = 30.0,
        recovery: float = 60.0,
        burst: bool = False,
    ) -> None:
        self.app = app
        self.id = process_id("worker")
        self._queues = app.policies(queues)
        self._concurrency = whole("concurrency", concurrency, 1, 10_000)
        self._grace = number("grace", grace, 0.0, 86400.0)
        self._recovery = number("recovery", recovery, 0.0, 86400.0)
        self._burst = burst
        self._held: dict[Lease, Held] = {}
        self._waiting: deque[Held] = deque()
        self._running = 0
        self._bell = asyncio.Event()
        self._hungry = True
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False
        self._force = asyncio.Event()
        self._failures = 0
        self._ahead = Ahead()

    async def run(self) -> None:
        """Work until stopped, then leave no lease behind."""
        self._store = await self._open()
        self._threads = Threads(self._concurrency)
        reaper = Reaper(self._store, interval=self._recovery, owner=f"reaper-{self.id}")
        every = min(policy.heartbeat for policy in self._queues.values())
        self._pulse = Pulse(self._store, self._facts, self._held, every, self._lose)
        self._outbox = Outbox(self._store)
        await reaper.begin()
        helpers = [asyncio.create_task(reaper.go_on()), asyncio.create_task(self._pulse.run())]
        log.info("worker %s takes %s, %d at a time", self.id, ", ".join(self._queues), self._concurrency)
        try:
            await self._work()
        except BaseException:  # cancelled, or a mistake of ours: wait for nothing, but give back what we hold
            self._stopping = True
            self._force.set()
            raise
        finally:
            try:
                await self._drain()
            finally:
                await self._end(helpers)

    def stop(self) -> None:
        """Take no more jobs and end when the running ones have; called again, end at once."""
        if self._stopping:
            self._force.set()
        log.info("worker %s takes no more jobs and ends when %d running ones have", self.id, self._running)
        self._stopping = True
        self._bell.set()

    async def _end(self, helpers: list[asyncio.Task[None]]) -> None:
        # Last of all: leases stay renewed while jobs finish.
        for helper in (*helpers, self._watching):
            if helper:
                helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        self._threads.close()

    async def _open(self) -> Store:
        pause = 0.2
        while True:
            try:
                return await self.app.store()
            except StoreUnavailable as error:
                if self._stopping:
                    raise
                log.warning("the store does not answer, will try again in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _work(self) -> None:
        while not self._stopping:
            self._bell.clear()
            self._start()
            wanted = self._room() if self._hungry else 0
            if wanted or self._outbox:
                await self._exchange(wanted)
            elif self._burst and not self._held:
                return
            else:
                self._watch()
                await self._bell.wait()

    async def _exchange(self, wanted: int) -> None:
        """Write all outcomes gathered since the last time and take new jobs, together."""
        sent = time.monotonic()
        shares = {name: Share(policy.lease, wanted) for name, policy in self._queues.items()}
        settled, leased = await asyncio.gather(
            self._outbox.send(), self._store.lease(shares, wanted, self.id), return_exceptions=True
        )
        if not isinstance(settled, BaseException):
            self._settled(settled)
            # A burst ends when nothing is due, and what was just settled may have brought new work.
            self._hungry |= self._burst and bool(settled)
        if not isinstance(leased, BaseException):
            self._take(leased, sent)
            if wanted:
                self._hungry = bool(leased)
        for answer in (settled, leased):
            if isinstance(answer, BaseException):
                await self._stumble(answer)
                return
        self._failures = 0

    async def _stumble(self, error: BaseException) -> None:
        """The store failed us. Outcomes stay in memory, leases stay renewed, and we try again."""
        if not isinstance(error, StoreError):
            raise error
        pause = min(0.1 * 2**self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311
        self._failures = min(self._failures + 1, 10)
        log.warning("the store does not answer, will try again in %.1f s: %s", pause, error)
        await _at_most(self._force.wait(), pause)

    def _take(self, jobs: list[Job], sent: float) -> None:
        for job in jobs:
            held = Held(job, self._queues[job.queue].lease, 0.0)
            held.trust(sent)
            self._held[job.lease] = held
            self._waiting.append(held)

    def _start(self) -> None:
        while self._waiting and self._running < self._concurrency:
            held = self._waiting.popleft()
            held.running = asyncio.create_task(self._run(held))
            self._running += 1

    async def _run(self, held: Held) -> None:
        """Carry one job through. Whatever happens here must end in an outcome, or the job would hang."""
        outcome: Outcome | None = None
        try:
            if time.monotonic() > held.trusted_until:
                await self._pulse.beat()
            if held.verdict is Verdict.HELD:
                task = self.app.tasks.get(held.job.task)
                handler = task.handler if task else None
                runner = on_loop if handler and handler.is_async else self._threads.run
                outcome = await perform(handler, held.context, runner, self.id)
        except asyncio.CancelledError:
            if held.verdict is Verdict.HELD:
                outcome = released(held.job.lease, why="the worker stopped")
        except StoreError as error:
            outcome = released(held.job.lease, why=f"the lease could not be confirmed: {error}")
        finally:
            self._ended(held, outcome)

    def _ended(self, held: Held, outcome: Outcome | None) -> None:
        self._running -= 1
        self._ahead.consumed()
        if held.ended:  # given back already, because it did not listen
            return
        if outcome is not None and held.verdict is Verdict.HELD:
            held.ended = True
            self._outbox.add(outcome)
        else:
            self._held.pop(held.job.lease, None)
        if not self._stopping:
            self._start()
        self._bell.set()

    def _settled(self, answers: Iterable[tuple[Outcome, Settled]]) -> None:
        for outcome, answer in answers:
            self._held.pop(outcome.lease, None)
            if answer is Settled.LOST:
                told = {"jobId": outcome.lease.id, "workerId": self.id, "outcome": outcome.event}
                log.warning(
                    "the lease of job %s was lost: its outcome is refused", outcome.lease.id, extra=told
                )

    def _lose(self, held: Held, verdict: Verdict) -> None:
        """Somebody else has the job now, or nobody wants it any more: stop working on it."""
        told = {"jobId": held.job.id, "workerId": self.id}
        log.warning("job %s: the lease is %s", held.job.id, verdict, extra=told)
        held.verdict = verdict
        held.context.cancelled = True
        if held.running is not None:
            held.running.cancel()
        elif held in self._waiting:
            self._waiting.remove(held)
            self._held.pop(held.job.lease, None)
        self._bell.set()

    def _room(self) -> int:
        """How many jobs to ask for: free slots, and what the last moments consumed."""
        ahead = self._ahead.jobs()
        have = self._running + len(self._waiting)
        if have >= self._concurrency and len(self._waiting) > ahead // 2:
            return 0
        return max(0, self._concurrency + ahead - have)

    def _watch(self) -> None:
        if self._hungry or self._burst or (self._watching and not self._watching.done()):
            return
        self._watching = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        try:
            await self._store.wait(list(self._queues), LOOK)
        except StoreError as error:
            log.warning("waiting for work failed: %s", error)
            await asyncio.sleep(1.0)
        self._hungry = True
        self._bell.set()

    async def _drain(self) -> None:
        """Give back what was not started, wait for the rest, cancel what takes too long."""
        self._give_back(self._waiting)
        self._waiting.clear()
        end = time.monotonic() + self._grace
        while self._running and not self._force.is_set() and (left := end - time.monotonic()) > 0:
            self._bell.clear()
            if self._outbox:
                await self._exchange(0)
            else:
                await _at_most(self._bell.wait(), left)
        running = {held.running: held for held in self._held.values() if held.running and not held.ended}
        for task, held in running.items():
            held.context.cancelled = True
            task.cancel()
        if running:
            log.warning("cancelled %d jobs that did not end in time: they are given back", len(running))
            _, deaf = await asyncio.wait(running, timeout=5.0)
            self._give_back([running[task] for task in deaf])
        end = time.monotonic() + FAREWELL
        while self._outbox and time.monotonic() < end:
            await self._exchange(0)

    def _give_back(self, jobs: Iterable[Held]) -> None:
        for held in jobs:
            held.ended = True
            self._outbox.add(released(held.job.lease, why="the worker stopped"))

    def _facts(self) -> Facts:
        return Facts(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=tuple(self._queues),
            tasks=tuple(self.app.tasks),
            concurrency=self._concurrency,
            running=self._running,
        )


async def _at_most(work: Any, seconds: float) -> None:
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return
