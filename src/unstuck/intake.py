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
        self.hungry = False  # unless there are jobs, or something is written while we ask
        try:
            jobs = await self._lease(wanted)
        except BaseException:
            self.hungry = True
            raise
        if jobs:
            self.hungry, self._in_vain = True, 0
        return len(jobs)

    async def _lease(self, wanted: int) -> list[Job]:
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
            if any(name in self._limits.buckets for name in limits):
                await self._limits.give_back()
        for name in limits:
            idle = name in self._limits.buckets and not any(job.queue == name for job in jobs)
            if idle and not self.eager:  # who ends when nothing is left must not overlook what came just now
                self._limits.nothing(name)
        return jobs

    async def lease_first(self, limit: int) -> int:
        """Take up to ``limit`` jobs and start those that tokens can be had for; answers how many were started."""
        sent = time.monotonic()
        jobs = await self._store.lease(self._shares(dict.fromkeys(self._queues, limit)), limit, self._owner)
        try:
            await self._limits.take({job.queue for job in jobs}, len(jobs))
        finally:
            self._hold(jobs, sent)
            started = sum(held.running is not None for held in self._slots.held.values())
            await self._limits.give_back()
        return started

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
        names = [name for name in self._queues if self._limits.open(name)]
        granted = await self._limits.take(names, min(wanted, self._slots.free))
        limits = {
            name: granted[name] * self._batch[name]
            if name in granted
            else self._slots.room(self._batch[name])
            for name in names
        }
        return {name: most for name, most in limits.items() if most > 0}

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
        for queue in self._limits.buckets:
            self._slots.refuse(queue)

    async def _wait(self) -> None:
        began = time.monotonic()
        try:
            names = [name for name in self._queues if not self._limits.closed(name)]
            await self._store.wait(names, min(LOOK, self._limits.next_open() or LOOK))
        except Exception as error:  # noqa: BLE001 - a worker that does not look any more looks alive, and is not
            log.warning("waiting for work failed: %s", error)
            await asyncio.sleep(1.0)
        if time.monotonic() - began < IN_VAIN:
            # There is work, but limits keep it from us: do not ask all the time.
            await asyncio.sleep(min(0.005 * 2**self._in_vain, LONGEST_IN_VAIN))
            self._in_vain = min(self._in_vain + 1, 10)
        self.hungry = True
        self._bell.set()
