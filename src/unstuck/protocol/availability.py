"""When the store was up and reachable, as far as one reaper knows. Only that time counts against a lease."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

log = logging.getLogger("unstuck.reaper")

STEP = 5.0  # seconds by which a clock can go faster or slower than ours without having been set
SLOW = 1.0  # seconds: what waited longer for its answer stood before a lock, or a line that was cut
FOREVER = 1e9
MOST = 64  # outages that are remembered; a live worker beats between two of them
_ROUNDED = 1.0  # seconds: some servers count how long they have been up in whole ones


class Clock(NamedTuple):
    """The store's time, and for how many seconds its server has been up (infinite without a server)."""

    now: datetime
    uptime: float = math.inf


class Blind(NamedTuple):
    """A span in which holders could not reach the store, in seconds before now (or ``as_of``), the older end first.

    Those of a call do not overlap.
    """

    since: float
    until: float


class Seen(NamedTuple):
    """The store's time at a look, and the spans before it in which holders could not reach the store."""

    at: datetime
    blind: list[Blind]


class Availability:
    """Watches the calls of one reaper, and concludes from them when holders could not reach the store.

    These spans are blind, all on the store's clock, as its stamps are:

    - the time before the store started, as first seen;
    - from the last recovery to the first answer after a call that failed, or all time before that answer if there was
      no recovery yet;
    - the wait for a slow answer, and a sleep in which this process stood still;
    - from the last look to the start of a server that was restarted;
    - what a clock that was set ahead skipped.
    """

    def __init__(self) -> None:
        self.failing = False  # the last call did
        self._recovered: float | None = None
        self._slow = self._slow_before = False
        self._still = self._still_before = False
        self._missed: list[tuple[float, float]] = []  # on our clock, since the last look
        self._looked: tuple[float, float] | None = None  # on our clock and on the store's
        self._started = -math.inf
        self.put_back = False  # the store's clock, and what waits by the old one was not seen to yet
        self._blind: deque[tuple[float, float]] = deque(maxlen=MOST)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """For the length of one call. Whether it fails, and how long its answer takes, is noted."""
        asked = time.monotonic()
        failed, self.failing = self.failing, True
        yield
        self.failing, now = False, time.monotonic()
        if failed:
            # An outage that was there before us may have begun at any time.
            self._missed.append((now - FOREVER if self._recovered is None else self._recovered, now))
        elif now - asked > SLOW:
            # It may have begun while we slept. Of a store that is always slow the sleep counts, or nothing ever would.
            since = asked if self._slow_before or self._recovered is None else self._recovered
            self._missed.append((since, now))
            self._slow = True

    def slept(self, began: float, planned: float) -> None:
        """Note a sleep that was to take so long. If it took longer, this process stood still, perhaps with a lock in hand.

        Meanwhile nobody else could write, and this process did not notice. A process that always stands still must recover, too.
        """
        now = time.monotonic()
        if now - began <= planned + SLOW:
            return
        if not self._still_before:
            self._missed.append((began, now))
        self._still = True

    def recovered(self) -> None:
        """A recovery went through: until now every living holder could have sent a heartbeat, except in the spans that were noted."""
        self._recovered = time.monotonic()
        self._slow_before, self._slow = self._slow, False
        self._still_before, self._still = self._still, False

    def look(self, clock: Clock) -> Seen:
        """What is known at the store's time, which it has just reported."""
        here, there = time.monotonic(), clock.now.timestamp()
        was_here, was_there = self._looked or (here, there)
        self._looked = (here, there)
        self._blind += [(was_there + since - was_here, there + until - here) for since, until in self._missed]
        self._missed.clear()
        self._notice_step((there - was_there) - (here - was_here), there)
        started = there - clock.uptime
        if 0 < clock.uptime < here - was_here - _ROUNDED:
            self._blind.append((was_there, started))
        elif self._started == -math.inf or started < self._started:
            self._started = started
        spans = joined([(there - FOREVER, self._started), *self._blind])
        blind = [Blind(there - since, max(0.0, there - until)) for since, until in spans if since < there]
        return Seen(clock.now, blind)

    def _notice_step(self, ahead: float, there: float) -> None:
        if ahead > STEP:
            log.warning("the store's clock went %.1f s ahead: running leases get that much longer", ahead)
            self._blind.append((there - ahead, there))
        elif ahead < -STEP:
            log.warning("the store's clock was put back by %.1f s: see Time in docs/concepts.md", -ahead)
            self.put_back = True
            # They would be taken for outages of the time that comes a second time.
            kept = [span for span in self._blind if span[1] <= there]
            self._blind.clear()
            self._blind += kept


def runs_out(ended: float, last_sign: float, seen: Seen) -> float:
    """When a lease has run out that ``ended`` at this time and whose holder gave its ``last_sign`` then. Stores compute the same."""
    at = seen.at.timestamp()
    return ended + sum(max(0.0, at - span.until - max(at - span.since, last_sign)) for span in seen.blind)


def joined(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same spans without overlaps, so that no time is forgiven twice."""
    found: list[tuple[float, float]] = []
    for since, until in sorted(span for span in spans if span[0] < span[1]):
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], max(until, found[-1][1]))
        else:
            found.append((since, until))
    return found
