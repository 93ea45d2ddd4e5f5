"""Leasing: when a worker asks for jobs, and for how many. Tokens come first, then leases."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from unstuck.background import end, happens
from unstuck.config.policy import Policy
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Share
from unstuck.protocol.store import Store
from unstuck.worker.held_leases import HeldLeases
from unstuck.worker.rate_limits import RateLimits
from unstuck.worker.slots import Slots
from unstuck.worker.turns import Turns

log = logging.getLogger("unstuck.worker")

LOOK = 5.0  # seconds after which an idle worker asks for work even if nothing woke it
IN_VAIN = 0.02  # a wait that ended sooner than this and brought nothing was in vain
LONGEST_IN_VAIN = 0.25  # seconds between looks while there are jobs that limits keep from us


class Leasing:
    """Asks for jobs when asking may bring something. ``burst`` asks after each outcome, without waiting for news.

    While no slot is free only new jobs are leased: one that ended a lease before has waited already, and would wait here,
    too, though another worker may have room for it.
    """

    def __init__(
        self,
        store: Store,
        queues: Mapping[str, Policy],
        batch: Mapping[str, int],
        turns: Turns,
        limits: RateLimits,
        held: HeldLeases,
        slots: Slots,
        wakeup: asyncio.Event,
        *,
        burst: bool,
    ) -> None:
        self._store = store
        self._queues = queues
        self._batch = batch
        self._turns = turns
        self._limits = limits
        self._held = held
        self._slots = slots
        self._wakeup = wakeup
        self._burst = burst
        self._watching: asyncio.Task[None] | None = None
        self._in_vain = 0
        self._worth_asking = True
        self._only_new = False  # whether the last lease was for new jobs only, and brought none

    def wanted(self) -> int:
        """How many jobs to ask for now."""
        # As soon as a slot is free there may be work for it that was left to others while none was.
        worth_asking = self._worth_asking or (self._only_new and self._slots.free > 0)
        return self._slots.room() if worth_asking else 0

    async def lease(self, wanted: int) -> None:
        """Take tokens, then jobs for them and for what needs none, and start them."""
        if not wanted:
            return
        self._worth_asking = False  # unless there are jobs, or something is written while we ask
        self._only_new = False
        try:
            jobs = await self._lease(wanted)
        except BaseException:
            self._worth_asking = True
            raise
        if jobs:
            self._worth_asking, self._in_vain = True, 0

    async def _lease(self, wanted: int) -> list[Job]:
        await self._limits.ask()
        only_new = self._slots.free == 0  # then no tokens are taken either
        limits = await self._tokens(wanted)
        jobs: list[Job] = []
        try:
            if limits:
                sent = time.monotonic()
                shares = self._shares(limits, only_new=only_new)
                jobs = await self._store.lease(shares, self._most(wanted, limits), self._held.worker)
                self._turns.taken(job.queue for job in jobs)
                self._only_new = only_new and not jobs
                self._slots.take(jobs, self._queues, sent)
        finally:
            if any(name in self._limits.buckets for name in limits):
                await self._limits.give_back()
        for name in limits:
            idle = name in self._limits.buckets and not any(job.queue == name for job in jobs)
            if idle and not self._burst:  # a burst must not end before it has seen what came just now
                self._limits.nothing(name)
        return jobs

    async def lease_first(self, limit: int) -> int:
        """Take up to ``limit`` jobs and start those for which there are tokens; returns how many were started."""
        await self._limits.ask()
        names = [name for name in self._queues if not self._limits.closed(name)]
        sent = time.monotonic()
        jobs = await self._store.lease(self._shares(dict.fromkeys(names, limit)), limit, self._held.worker)
        self._turns.taken(job.queue for job in jobs)
        try:
            await self._limits.take({job.queue for job in jobs}, len(jobs))
        finally:
            self._slots.take(jobs, self._queues, sent)
            started = sum(held.running is not None for held in self._held.all())
            await self._limits.give_back()
        return started

    def made_room(self) -> None:
        """Outcomes were written: they may have brought new work, or made room under a limit.

        But where only new jobs were wanted in vain, what is left waits for a free slot and not for room under a limit.
        """
        self._worth_asking |= not self._only_new and (self._burst or self._in_vain > 0)

    async def sleep(self, opening: float | None) -> None:
        """Until something happens or there may be work, which a limit may allow in ``opening`` seconds."""
        if not (self._worth_asking or self._burst or (self._watching and not self._watching.done())):
            self._watching = asyncio.create_task(self._watch())
        longest = min(LOOK, self._held.patience)
        await happens(self._wakeup, min(longest, opening or longest))
        self._worth_asking |= opening is not None

    async def close(self) -> int:
        """Stop waiting for work; returns how many tasks did not end."""
        return await end([self._watching])

    async def _tokens(self, wanted: int) -> dict[str, int]:
        """How many jobs to ask for, by queue."""
        names = [name for name in self._queues if self._limits.open(name)]
        granted = await self._limits.take(names, min(wanted, self._slots.free))
        limits = {
            name: min(granted[name] * self._batch[name], self._slots.left)
            if name in granted
            else self._slots.room(self._batch[name])
            for name in names
        }
        return {name: most for name, most in limits.items() if most > 0}

    def _most(self, wanted: int, limits: Mapping[str, int]) -> int:
        """How many jobs to ask for in all. No more than a queue without a rate may have alone: what it has the turn for must
        not go to another because there was more room a moment ago."""
        rated = self._limits.buckets.keys()
        return max(limits.values()) if limits.keys() - rated else max(wanted, *limits.values())

    def _shares(self, limits: Mapping[str, int], *, only_new: bool = False) -> dict[str, Share]:
        return {
            name: Share(
                policy.lease,
                limits[name],
                policy.limit,
                policy.lane_limit,
                policy.max_crashes,
                only_new,
                *self._turns.of(name),
            )
            for name, policy in self._queues.items()
            if name in limits
        }

    async def _watch(self) -> None:
        """Wait at the store until it has work, and wake the worker."""
        began = time.monotonic()
        try:
            names = [name for name in self._queues if not self._limits.closed(name)]
            await self._store.wait(names, min(LOOK, self._limits.next_open() or LOOK))
        except Exception as error:  # noqa: BLE001 - a worker that no longer looks for work seems alive, and is not
            log.warning("waiting for work failed: %s", error)
            await asyncio.sleep(1.0)
        if time.monotonic() - began < IN_VAIN:
            # There is work, but limits keep it from us: do not ask all the time.
            await asyncio.sleep(min(0.005 * 2**self._in_vain, LONGEST_IN_VAIN))
            self._in_vain = min(self._in_vain + 1, 10)
        self._worth_asking = True
        self._wakeup.set()
