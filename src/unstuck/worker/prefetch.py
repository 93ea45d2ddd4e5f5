"""How many jobs a worker may lease ahead of running them."""

from __future__ import annotations

import math
import time

WINDOW = 0.2  # seconds
BEGINNING = WINDOW / 10  # of a window, after which its pace can be measured
REST = 1.0  # seconds without leasing ahead, when a job that waited elsewhere before waited here, too
MOST = 3000
IN_ONE_CALL = 1000  # or all that was leased before would be used up until the answer to a larger one comes


class Ahead:
    """At most what a window consumes at the pace of the last one, or of this one so far.

    So much is started soon enough not to hold a job up.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = self._now = 0
        self._resting = -math.inf

    def consumed(self, count: int) -> None:
        self._now += count

    def nothing(self) -> None:
        """Begin again: what was leased ahead turned out to be too much."""
        self._last = self._now = 0

    def rest(self) -> None:
        """Leave to others what we could not start: without a free place we would only take it again."""
        self.nothing()
        self._resting = time.monotonic() + REST

    def jobs(self) -> int:
        return 0 if time.monotonic() < self._resting else self._pace()

    def _pace(self) -> int:
        now = time.monotonic()
        if now - self._began >= WINDOW:
            self._last = self._now if now - self._began < 2 * WINDOW else 0
            self._began, self._now = now, 0
        pace = self._now * WINDOW / max(now - self._began, BEGINNING)
        return min(max(self._last, round(pace)), MOST)
