"""Pulse: keeps the leases of a worker alive, and tells which of them are lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from unstuck.context import Context
from unstuck.errors import StoreError
from unstuck.model import Beat, Job, Lease, Verdict, Worker, released
from unstuck.store import Store

log = logging.getLogger("unstuck.worker")


@dataclass(slots=True, eq=False)
class Held:
    """A lease this worker has: its job, how long it may be trusted, and the task that runs it, if any."""

    job: Job
    seconds: float
    trusted_until: float
    taken: float = field(init=False)
    context: Context = field(init=False)
    running: asyncio.Task[None] | None = None
    verdict: Verdict = Verdict.HELD
    begun: bool = False  # a task that has not begun must not be cancelled: it would end without a trace
    ended: bool = False  # its outcome is on the way: still beaten for, but no longer lost or won here

    def __post_init__(self) -> None:
        self.context = Context(self.job)
        self.taken = time.monotonic()

    def beat(self) -> Beat:
        context = self.context
        return Beat(self.job.lease, self.seconds, context.said_progress, context.said_stage)

    @property
    def waited(self) -> float:
        """For how many seconds it has been leased."""
        return time.monotonic() - self.taken

    def trust(self, sent: float) -> None:
        # The store counts from when it got our call, so counting from when we sent it errs on the safe side.
        self.trusted_until = sent + self.seconds - max(0.5, self.seconds / 10)


class Pulse:
    """Beats for everything in ``held`` in one statement. ``lost`` is called for each lease that is gone."""

    def __init__(
        self,
        store: Store,
        worker: Callable[[], Worker],
        held: dict[Lease, Held],
        every: float,
        lost: Callable[[Held, Verdict], None],
    ) -> None:
        self._store = store
        self._worker = worker
        self._held = held
        self._every = every
        self._lost = lost
        self._strangers: set[Lease] = set()
        self._beating = asyncio.Lock()

    async def run(self) -> None:
        """Beat until cancelled. A beat that fails is tried again soon, well within the lease."""
        while True:
            pause = self._every
            try:
                await self.beat()
            except StoreError as error:
                log.warning("heartbeat failed, will try again: %s", error)
                pause = min(pause, 1.0)
            except Exception:
                log.exception("heartbeat failed, will try again")
            await asyncio.sleep(pause)

    async def beat(self) -> None:
        async with self._beating:
            held = [one for one in self._held.values() if one.verdict is Verdict.HELD]
            sent = time.monotonic()
            answer = await self._store.heartbeat(self._worker(), [one.beat() for one in held])
            for one in held:
                verdict = answer.verdicts[one.job.lease]
                if verdict is Verdict.HELD:
                    one.trust(sent)
                elif not one.ended:
                    self._lost(one, verdict)
            await self._give_back(answer.strangers)

    async def _give_back(self, strangers: Iterable[Lease]) -> None:
        """Release what is ours by the store's word but unknown to us twice running: its answer was lost."""
        unknown = {lease for lease in strangers if lease not in self._held}
        forgotten = unknown & self._strangers
        self._strangers = unknown - forgotten
        if forgotten:
            log.warning("giving back %d leases whose answer was lost", len(forgotten))
            await self._store.settle(
                [released(lease, why="the answer was lost") for lease in sorted(forgotten)]
            )
