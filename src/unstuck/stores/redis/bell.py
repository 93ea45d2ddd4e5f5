"""Bell: waits for work at the markers that every producer rings. Losing a ring costs latency, never a job."""

from __future__ import annotations

import time
from collections.abc import Sequence

from unstuck.stores.redis.lines import SLICE, Lines

LATER = "1"  # what a bell says that rings for a job that is not due yet
SHORT = 0.002  # the server's clock is read before its answer travels
LEAST = 0.01  # seconds for which it is worth to listen; for the server 0 would mean for ever


async def wait(lines: Lines, queues: Sequence[str], timeout: float) -> None:
    """Return when a job of the queues is due, or after ``timeout``.

    Whoever hears a bell has taken it from the others: the lease that follows rings again if there is more.
    """
    end = time.monotonic() + timeout
    bells = [lines.place.of(queue, "marker") for queue in queues]
    while (left := end - time.monotonic()) > 0:
        ready, due = await lines.run("work", queues)
        if ready or (due is not None and int(due) <= 0):
            return
        nap = min(left, SLICE, int(due) / 1000 + SHORT if due is not None else left)
        rung = await lines.listen(bells, max(LEAST, nap))
        if rung is not None and rung[0] != LATER:
            return
