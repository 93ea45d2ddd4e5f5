"""RateLimits: the tokens a worker needs to start jobs of queues that have a rate. Taken before jobs are leased."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from unstuck.background import end
from unstuck.config.policy import Policy, Rate
from unstuck.protocol.errors import StoreError, StoreUnavailable
from unstuck.protocol.limits import ANY_QUEUE, of_queue
from unstuck.protocol.store import Store
from unstuck.worker.permit import NoToken, Permit, RateState, Ticket

log = logging.getLogger("unstuck.worker")

SHARE = 0.02  # of the interval: how long a token may wait for its start, if nothing was ever late
LEAST, MOST = 0.05, 1.0  # seconds, its bounds
SLOWEST = 30.0  # seconds that a store may take to lease, and a rated queue still gets on
EMPTY = 0.05  # seconds to leave a queue alone that had a token but no job
AGAIN = 1.0  # seconds after which a bucket that was empty is asked again
PATIENCE = (
    1.0  # seconds that a job which is ready to start may wait for another token, before it is given back
)
ASK = 0.25  # seconds in which a worker need not ask again which queues are to be left alone
LOG_EVERY = 60.0  # seconds between two lines about an empty bucket


def slack(rate: Rate) -> float:
    """How many seconds longer than the rate a token stays out, at first."""
    return min(max(SHARE * rate.per, LEAST), MOST)


class RateLimits:
    """Takes tokens, keeps those that were not used yet, and gives them back.

    N per interval shall hold for *starts*, in any window, but a start comes a little later than its token was
    taken. So a token stays out that little longer, and one that was not used by then is not used at all: the
    :class:`Permit` for a start looks at the clock when the handler is called.
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
        self._plain = [name for name in queues if name not in self.buckets]
        self._asked = -math.inf
        self._slack = {name: slack(rate) for name, rate in self._rates.items()}
        self._tickets: dict[str, list[Ticket]] = {bucket: [] for bucket in self._rates}
        self._closed: dict[str, float] = {}
        self._quiet: dict[str, float] = {}
        self._logged: dict[str, float] = {}
        self._notices: set[asyncio.Task[None]] = set()

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

    async def ask(self) -> None:
        """Learn which queues without a rate all workers are to leave alone: now and then, not with every lease."""
        if not self._plain or time.monotonic() - self._asked < ASK:
            return
        self._asked = time.monotonic()
        if (await self._store.take(ANY_QUEUE)).closed_for <= 0:
            return
        for queue in self._plain:
            if (seconds := (await self._store.take(of_queue(queue))).closed_for) > 0:
                self._stay_away(queue, seconds)

    async def take(self, queues: Iterable[str], wanted: int) -> dict[str, int]:
        """How many starts each queue may make now, at most ``wanted``; the tickets for them are kept.

        Queues that share a bucket share what it grants: one that has no job takes nothing from the others.
        """
        granted: dict[str, int] = {}
        rated = [queue for queue in queues if queue in self.buckets]
        for bucket in dict.fromkeys(self.buckets[queue] for queue in rated):
            granted[bucket] = await self._take(bucket, wanted)
        return {queue: granted[self.buckets[queue]] for queue in rated}

    async def one(self, queue: str) -> Permit | None:
        """Wait for a token, for a further call that a job in work makes; None if it needs none."""
        if (bucket := self.buckets.get(queue)) is None:
            return None
        return Permit(await self.more(bucket, math.inf), self)

    def use(self, queue: str) -> Permit | None:
        """Spend one ticket on a start; None if there is none that is still good."""
        bucket = self.buckets[queue]
        tickets, now = self._tickets[bucket], time.monotonic()
        for at, ticket in enumerate(tickets):
            if ticket.until >= now:
                del tickets[at]
                return Permit(ticket, self)
        if tickets:
            self._too_slow(tickets[-1])
        return None

    async def another(self, ticket: Ticket, late: bool, again: bool) -> Ticket:
        """One more ticket for a start; the one that was too ``late`` for it is given back."""
        if again:  # by then it was taken at the last moment
            self._too_slow(ticket)
        if late:
            await self.put_back(ticket)
        return await self.more(ticket.bucket, PATIENCE)

    async def put_back(self, ticket: Ticket) -> None:
        try:
            await self._store.give_back(ticket.bucket, 1, ticket.stamp)
        except StoreError as error:
            log.warning("a token of %s could not be given back: %s", ticket.bucket, error)

    async def state(self, bucket: str) -> RateState:
        """A bucket as the store has it now."""
        rate, now = self._rates[bucket], await self._store.take(bucket)
        return RateState(rate.count, rate.per, now.out, now.first_back, now.closed_for)

    async def more(self, bucket: str, patience: float) -> Ticket:
        """One more ticket; raises NoToken if there is none within so many seconds."""
        rate, end = self._rates[bucket], time.monotonic() + patience
        while True:
            sent, slack = time.monotonic(), self._slack[bucket]
            ticket = Ticket(bucket, 0, sent + slack, slack)
            try:
                grant = await self._store.take(bucket, 1, rate.count, rate.per + slack)
                if grant.granted and time.monotonic() > ticket.until:
                    self._too_slow(ticket)
                    await self._store.give_back(bucket, 1, grant.stamp)
                    continue
            except StoreUnavailable as error:
                log.warning("no token could be had for %s, will try again: %s", bucket, error)
                wait = AGAIN
            else:
                if grant.granted:
                    return ticket._replace(stamp=grant.stamp)
                wait = min(max(grant.wait, 0.001), AGAIN)
            if time.monotonic() + wait > end:
                raise NoToken(f"no token of {bucket} was left", code="no_token")
            await asyncio.sleep(wait)

    def _too_slow(self, ticket: Ticket) -> None:
        """Let tokens stay out longer next time than this one did; of those that were late together, one counts."""
        longer = min(2 * ticket.slack, max(self._rates[ticket.bucket].per, SLOWEST))
        self._slack[ticket.bucket] = max(self._slack[ticket.bucket], longer)

    async def give_back(self) -> None:
        """Return all tickets that were not used; what was not started by now asks again."""
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
        self._stay_away(queue, seconds)
        notice = asyncio.create_task(self._notify_others(queue, seconds))
        self._notices.add(notice)
        notice.add_done_callback(self._notices.discard)

    def _stay_away(self, queue: str, seconds: float) -> None:
        key = self._key(queue)
        self._closed[key] = max(self._closed.get(key, -math.inf), time.monotonic() + seconds)

    async def finish(self, seconds: float) -> int:
        """Wait until other workers know what we closed, but no longer than so many seconds; returns how many calls did not end."""
        if self._notices:
            await asyncio.wait(self._notices, timeout=seconds)
        return await end(self._notices)

    async def _notify_others(self, queue: str, seconds: float) -> None:
        rated = queue in self.buckets
        try:
            for bucket in [self.buckets[queue]] if rated else [of_queue(queue), ANY_QUEUE]:
                await self._store.give_back(bucket, close_for=seconds)
        except StoreError as error:
            log.warning("other workers could not be asked to leave %s alone: %s", self._key(queue), error)

    async def _take(self, bucket: str, wanted: int) -> int:
        if wanted < 1:
            return 0
        rate, slack = self._rates[bucket], self._slack[bucket]
        sent = time.monotonic()
        grant = await self._store.take(bucket, wanted, rate.count, rate.per + slack)
        self._tickets[bucket] += [Ticket(bucket, grant.stamp, sent + slack, slack)] * grant.granted
        if not grant.granted:
            # Those who have the tokens may have no jobs for them: look again before they come back by themselves.
            now = time.monotonic()
            self._closed[bucket] = max(
                self._closed.get(bucket, -math.inf), now + min(max(grant.wait, 0.001), AGAIN)
            )
            self._log_empty(bucket, grant.wait)
        return grant.granted

    def _log_empty(self, bucket: str, wait: float) -> None:
        now = time.monotonic()
        if now - self._logged.get(bucket, -math.inf) >= LOG_EVERY:
            self._logged[bucket] = now
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
        """What is closed with the queue: its bucket, or itself alone."""
        return self.buckets.get(queue) or of_queue(queue)
