"""Limits: the tokens a worker needs to start jobs of queues that have a rate. Taken before jobs are leased."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from unstuck.errors import StoreError, StoreUnavailable
from unstuck.policy import Policy, Rate
from unstuck.store import Store

log = logging.getLogger("unstuck.worker")

SHARE = 0.02  # of the interval: how long a token may wait for its start, if nothing was ever late
LEAST, MOST = 0.05, 1.0  # seconds, its bounds
SLOWEST = 30.0  # seconds that a store may take to lease, and a rated queue still gets on
EMPTY = 0.05  # seconds to leave a queue alone that had a token but no job
AGAIN = 1.0  # seconds after which a bucket that was empty is asked again
TELL = 60.0  # seconds between two lines about an empty bucket


def slack(rate: Rate) -> float:
    """How many seconds longer than the rate says a token stays out, at first."""
    return min(max(SHARE * rate.per, LEAST), MOST)


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
        self.buckets = {name: policy.rate.bucket or name for name, policy in queues.items() if policy.rate}
        self._rates: dict[str, Rate] = {}
        for name, bucket in self.buckets.items():
            rate = queues[name].rate
            assert rate is not None
            other = self._rates.get(bucket, rate)  # if they disagree, the stricter one holds
            self._rates[bucket] = Rate(min(rate.count, other.count), max(rate.per, other.per))
        self._slack = {name: slack(rate) for name, rate in self._rates.items()}
        self._tickets: dict[str, list[Ticket]] = {bucket: [] for bucket in self._rates}
        self._closed: dict[str, float] = {}
        self._quiet: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._telling: set[asyncio.Task[None]] = set()

    def open(self, queue: str) -> bool:
        """Whether it makes sense to ask for jobs of a queue now."""
        return not self.closed(queue) and self._quiet.get(queue, -math.inf) <= time.monotonic()

    def closed(self, queue: str) -> bool:
        """Whether there is no token for the queue, or the other side wants us to stay away."""
        return bool(self._closed) and self._closed.get(self._key(queue), -math.inf) > time.monotonic()

    def next_open(self) -> float | None:
        """Seconds until the first queue has tokens again of those that have none."""
        now = time.monotonic()
        waits = [until - now for until in self._closed.values() if until > now]
        return min(waits, default=None)

    async def take(self, queues: Iterable[str], wanted: int) -> dict[str, int]:
        """How many starts each queue may make now, at most ``wanted``; the tickets for them are kept.

        Queues that share a bucket share what it grants: one that has no job takes nothing from the others.
        """
        granted: dict[str, int] = {}
        rated = [queue for queue in queues if queue in self.buckets]
        for bucket in dict.fromkeys(self.buckets[queue] for queue in rated):
            granted[bucket] = await self._take(bucket, wanted)
        return {queue: granted[self.buckets[queue]] for queue in rated}

    async def one(self, queue: str) -> None:
        """Wait for a token and spend it: for a further call that a job in work makes."""
        if (bucket := self.buckets.get(queue)) is None:
            return
        rate = self._rates[bucket]
        while True:
            sent, slack = time.monotonic(), self._slack[bucket]
            try:
                grant = await self._store.take(bucket, 1, rate.count, rate.per + slack)
                if grant.granted and time.monotonic() > sent + slack:
                    self._too_slow(bucket)
                    await self._store.give_back(bucket, 1, grant.stamp)
                    continue
            except StoreUnavailable as error:
                log.warning("no token could be had for %s, will try again: %s", queue, error)
                await asyncio.sleep(AGAIN)
            else:
                if grant.granted:
                    return
                await asyncio.sleep(min(max(grant.wait, 0.001), AGAIN))

    def use(self, queue: str) -> bool:
        """Spend one ticket on a start; false if there is none that is still good."""
        bucket = self.buckets[queue]
        tickets, now = self._tickets[bucket], time.monotonic()
        for at, ticket in enumerate(tickets):
            if ticket.until >= now:
                del tickets[at]
                return True
        if tickets:
            self._too_slow(bucket)
        return False

    def _too_slow(self, bucket: str) -> None:
        """Let tokens stay out longer next time."""
        self._slack[bucket] = min(2 * self._slack[bucket], max(self._rates[bucket].per, SLOWEST))

    async def give_back(self) -> None:
        """Return all tickets that were not used; what was not started by now asks anew."""
        unused = Counter(
            (ticket.bucket, ticket.stamp) for tickets in self._tickets.values() for ticket in tickets
        )
        for tickets in self._tickets.values():
            tickets.clear()
        for (bucket, stamp), count in unused.items():
            await self._store.give_back(bucket, count, stamp)

    def nothing(self, queue: str) -> None:
        """There was no job for the tokens: do not take and return them all the time."""
        self._quiet[queue] = time.monotonic() + EMPTY

    def close(self, queue: str, seconds: float) -> None:
        """Nobody shall start jobs of the queue for so long: the other side asked for it. We begin at once."""
        key = self._key(queue)
        self._closed[key] = max(self._closed.get(key, -math.inf), time.monotonic() + seconds)
        if queue in self.buckets:
            telling = asyncio.create_task(self._tell_others(self.buckets[queue], seconds))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def told(self) -> None:
        """Wait until others have been told what we closed."""
        await asyncio.gather(*self._telling)

    async def _tell_others(self, bucket: str, seconds: float) -> None:
        try:
            await self._store.close(bucket, seconds)
        except StoreError as error:
            log.warning("other workers could not be told to leave %s alone: %s", bucket, error)

    async def _take(self, bucket: str, wanted: int) -> int:
        if wanted < 1:
            return 0
        rate, slack = self._rates[bucket], self._slack[bucket]
        sent = time.monotonic()
        grant = await self._store.take(bucket, wanted, rate.count, rate.per + slack)
        self._tickets[bucket] += [Ticket(bucket, grant.stamp, sent + slack)] * grant.granted
        if not grant.granted:
            # Those who have the tokens may have no jobs for them: look again before they come back by themselves.
            now = time.monotonic()
            self._closed[bucket] = max(
                self._closed.get(bucket, -math.inf), now + min(max(grant.wait, 0.001), AGAIN)
            )
            self._tell(bucket, grant.wait)
        return grant.granted

    def _tell(self, bucket: str, wait: float) -> None:
        now = time.monotonic()
        if now - self._told.get(bucket, -math.inf) >= TELL:
            self._told[bucket] = now
            rate = self._rates[bucket]
            log.info(
                "no token is left of %d in %g s: jobs of %s start again in %.1f s at the latest",
                rate.count,
                rate.per,
                bucket,
                wait,
                extra={
                    "bucket": bucket,
                    "queues": [name for name, of in self.buckets.items() if of == bucket],
                },
            )

    def _key(self, queue: str) -> str:
        """What is closed with the queue: its bucket, or itself alone, by what no bucket can be called."""
        return self.buckets.get(queue, f"queue {queue}")
