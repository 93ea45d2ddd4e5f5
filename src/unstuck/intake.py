"""Intake: how a worker comes by jobs. Tokens first, then leases, and when to ask again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from unstuck.limits import Limits
from unstuck.model import Job
from unstuck.policy import Policy
from unstuck.pulse import Pulse
from unstuck.slots import Slots
from unstuck.store import Share, Store

log = logging.getLogger("unstuck.worker")

LOOK = 5.0  # seconds after which an idle worker asks for work even if nothing woke it
IN_VAIN = 0.02  # a wait that ended sooner than this and brought nothing was in vain
LONGEST_IN_VAIN = 0.25  # seconds between looks while there are jobs that limits keep from us


class Intake:
    """Fills the slots. ``hungry`` tells that asking may bring something; ``eager`` never waits for it."""

    def __init__(
        self,
        store: Store,
        owner: str,
        queues: Mapping[str, Policy],
        batch: Mapping[str, int],
        limits: Limits,
        slots: Slots,
        pulse: Pulse,
        bell: asyncio.Event,
    ) -> None:
        self._store = store
        self._owner = owner
        self._queues = queues
        self._batch = batch
        self._limits = limits
        self._slots = slots
        self._pulse = pulse
        self._bell = bell
        self._watching: asyncio.Task[None] | None = None
        self._in_vain = 0
        self.hungry = True
        self.eager = False

    async def lease(self, wanted: int) -> int:
        """Take tokens, then jobs for them and for what needs none, and start them; answers how many."""
        if not wanted:
            return 0
        limits = await self._tokens(wanted)
        jobs: list[Job] = []
        try:
            if limits:
                sent = time.monotonic()
                jobs = await self._store.lease(
                    self._shares(limits), max(wanted, *limits.values()), self._owner
                )
                self._hold(jobs, sent)
        finally:
            if any(name in self._limits.rates for name in limits):
                await self._limits.give_back()
        for name in limits:
            if name in self._limits.rates and not any(job.queue == name for job in jobs):
                self._limits.nothing(name)
        self.hungry = bool(jobs)
        if jobs:
            self._in_vain = 0
        return len(jobs)

    async def lease_first(self, limit: int) -> int:
        """Take up to ``limit`` jobs and start those that tokens can be had for; answers how many were taken."""
        sent = time.monotonic()
        jobs = await self._store.lease(self._shares(dict.fromkeys(self._queues, limit)), limit, self._owner)
        for queue in {job.queue for job in jobs if job.queue in self._limits.rates}:
            await self._limits.take(queue, sum(job.queue == queue for job in jobs))
        self._hold(jobs, sent)
        return len(jobs)

    def made_room(self) -> None:
        """Outcomes were written: they may have brought new work, or made room under a limit."""
        self.hungry |= self.eager or self._in_vain > 0

    def watch(self) -> None:
        """Have the bell rung when there may be work."""
        if self.hungry or self.eager or (self._watching and not self._watching.done()):
            return
        self._watching = asyncio.create_task(self._wait())

    def close(self) -> None:
        if self._watching:
            self._watching.cancel()

    async def _tokens(self, wanted: int) -> dict[str, int]:
        """How many jobs to ask for, by queue."""
        limits: dict[str, int] = {}
        for name in self._queues:
            if not self._limits.open(name):
                continue
            most = wanted
            if name in self._limits.rates:
                most = await self._limits.take(name, min(wanted, self._slots.free))
            if most:
                limits[name] = most * self._batch[name]
        return limits

    def _shares(self, limits: Mapping[str, int]) -> dict[str, Share]:
        return {
            name: Share(policy.lease, limits[name], policy.limit, policy.lane_limit)
            for name, policy in self._queues.items()
            if name in limits
        }

    def _hold(self, jobs: Sequence[Job], sent: float) -> None:
        self._slots.take(jobs, self._queues, sent)
        for lease in self._pulse.given_back & self._slots.held.keys():
            self._slots.drop(lease)  # its answer came so late that we have given it back
        self._slots.start()
        for queue in self._limits.rates:
            self._slots.refuse(queue)

    async def _wait(self) -> None:
        began = time.monotonic()
        try:
            await self._store.wait([name for name in self._queues if self._limits.open(name)], LOOK)
        except Exception as error:  # noqa: BLE001 - a worker that does not look any more looks alive, and is not
            log.warning("waiting for work failed: %s", error)
            await asyncio.sleep(1.0)
        if time.monotonic() - began < IN_VAIN:
            # There is work, but limits keep it from us: do not ask all the time.
            await asyncio.sleep(min(0.005 * 2**self._in_vain, LONGEST_IN_VAIN))
            self._in_vain = min(self._in_vain + 1, 10)
        self.hungry = True
        self._bell.set()
