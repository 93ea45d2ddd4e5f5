"""Line: how a lease is divided by turns among queues that cannot be compared in one statement."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping

from unstuck.protocol.leases import Share


class Line:
    """Queues of which jobs are still to be had, and how many were taken of each."""

    def __init__(self, shares: Mapping[str, Share]) -> None:
        names = list(shares)
        random.shuffle(names)  # so that of those that stand equal none is always asked last
        self._left = {name: shares[name] for name in names}
        self._taken: Counter[str] = Counter()

    def parts(self, limit: int) -> dict[str, int]:
        """How many jobs to ask each queue for, as if all had as many as they may give."""
        stands = sorted(
            (share.stands(self._taken[name] + number), place, name)
            for place, (name, share) in enumerate(self._left.items())
            for number in range(min(limit, share.limit - self._taken[name]))
        )
        return dict(Counter(name for *_, name in stands[: max(0, limit)]))

    def taken(self, asked: Mapping[str, int], queues: Iterable[str]) -> None:
        """Count jobs, given by their queues. Of a queue that brought fewer than it was asked for there are no more."""
        brought = Counter(queues)
        self._taken += brought
        for name, many in asked.items():
            if brought[name] < many:
                del self._left[name]
