"""Waits for work at the markers that every producer adds. Losing a wakeup costs latency, never a job."""

from __future__ import annotations

import time
from collections.abc import Sequence

from unstuck.stores.redis.client import SLICE, RedisClient

LATER = "1"  # the kind of a marker for a job that is not due yet
SHORT = 0.002  # seconds: the server reads its clock before it sends the answer
LEAST = 0.01  # seconds of the shortest wait; to the server 0 would mean for ever


async def wait(client: RedisClient, queues: Sequence[str], timeout: float) -> None:
    """Return when a job of the queues is due, or after ``timeout``.

    A marker wakes one worker only: the lease that follows adds another marker if more jobs are due.
    """
    end = time.monotonic() + timeout
    markers = [client.address.of(queue, "marker") for queue in queues]
    while (left := end - time.monotonic()) > 0:
        ready, due = await client.run("work", queues)
        if ready or (due is not None and int(due) <= 0):
            return
        nap = min(left, SLICE, int(due) / 1000 + SHORT if due is not None else left)
        marker = await client.listen(markers, max(LEAST, nap))
        if marker is not None and marker[0] != LATER:
            return
