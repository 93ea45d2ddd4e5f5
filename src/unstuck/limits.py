"""Limits: the tokens a worker needs to start jobs of queues that have a rate. Taken before jobs are leased."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from unstuck.policy import Policy, Rate
from unstuck.store import Store

log = logging.getLogger("unstuck.worker")

SHARE = 0.02  # of the interval: how long a token may wait for its start, if nothing was ever late
LEAST, MOST = 0.05, 1.0  # seconds, its bounds
EMPTY = 0.05  # seconds to leave a queue alone that had a token but no job


class Ticket(NamedTuple):
    """The right to one start, until a moment on our clock."""

    bucket: str
    stamp: int
    until: float


class Limits:
    """Takes tokens, keeps those that were not used yet, and gives them back.

    N per interval shall hold for *starts*, in any window, but a start comes a little later than its token was
    taken. So a token stays out that little longer, and one that was not used by then is not used at all.
    """

    def __init__(self, store: Store, queues: Mapping[str, Policy]) -> None:
        self._store = store
        self.rates = {name: policy.rate for name, policy in queues.items() if policy.rate is not None}
        self._slack = {name: min(max(SHARE * rate.per, LEAST), MOST) for name, rate in self.rates.items()}
        self._tickets: dict[str, list[Ticket]] = {name: [] for name in self.rates}
        self._closed: dict[str, float] = {}
        self._quiet: dict[str, float] = {}

    def open(self, queue: str) -> bool:
        """Whether it makes sense to ask for jobs of a queue now."""
        return max(self._closed.get(queue, 0.0), self._quiet.get(queue, 0.0)) <= time.monotonic()

    def next_open(self) -> float | None:
        """Seconds until the first queue has tokens again of those that have none."""
        now = time.monotonic()
        waits = [until - now for until in self._closed.values() if until > now]
        return min(waits, default=None)

    async def take(self, queue: str, wanted: int) -> int:
        """How many starts the queue may make now, at most ``wanted``; the tickets for them are kept."""
        rate, slack = self.rates[queue], self._slack[queue]
        sent = time.monotonic()
        bucket = rate.bucket or queue
        grant = await self._store.take(bucket, wanted, rate.count, rate.per + slack)
        self._tickets[queue] += [Ticket(bucket, grant.stamp, sent + slack)] * grant.granted
        if not grant.granted:
            self._closed[queue] = time.monotonic() + max(grant.wait, 0.001)
        return grant.granted

    def use(self, queue: str) -> bool:
        """Spend one ticket on a start; false if there is none that is still good."""
        tickets, now = self._tickets[queue], time.monotonic()
        for at, ticket in enumerate(tickets):
            if ticket.until >= now:
                del tickets[at]
                return True
        if tickets:  # too slow: let tokens stay out longer next time
            self._slack[queue] = min(2 * self._slack[queue], self.rates[queue].per)
        return False

    async def give_back(self) -> None:
        """Return all tickets that were not used; what was not started by now asks anew."""
        unused = [ticket for tickets in self._tickets.values() for ticket in tickets]
        for tickets in self._tickets.values():
            tickets.clear()
        for bucket, stamp in {(ticket.bucket, ticket.stamp) for ticket in unused}:
            count = sum(ticket.bucket == bucket and ticket.stamp == stamp for ticket in unused)
            await self._store.give_back(bucket, count, stamp)

    def nothing(self, queue: str) -> None:
        """There was no job for the tokens: do not take and return them all the time."""
        self._quiet[queue] = time.monotonic() + EMPTY

    async def close(self, queue: str, seconds: float) -> None:
        """Nobody shall start jobs of the queue for so long: the other side asked for it."""
        self._closed[queue] = max(self._closed.get(queue, 0.0), time.monotonic() + seconds)
        rate: Rate | None = self.rates.get(queue)
        if rate is not None:
            await self._store.close(rate.bucket or queue, seconds)
