"""Leases many jobs in several short steps: they hold the server up for less, and while it takes the next jobs we read
what the last step took."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from unstuck.model import Job
from unstuck.store import Share

log = logging.getLogger("unstuck.redis")

AT_ONCE = 200  # jobs of one step

Leasing = Callable[[Mapping[str, Share], int, str], Awaitable[list[Job]]]


async def in_parts(lease: Leasing, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
    """Of several queues one step takes what is best; of one queue the steps can follow each other."""
    if len(queues) != 1 or limit <= AT_ONCE:
        return await lease(queues, limit, owner)
    [(queue, share)] = queues.items()
    many = min(limit, share.limit)
    sizes = [min(AT_ONCE, many - taken) for taken in range(0, many, AT_ONCE)]
    steps = [lease({queue: share._replace(limit=size)}, size, owner) for size in sizes]
    answers = await asyncio.gather(*steps, return_exceptions=True)
    if errors := [answer for answer in answers if isinstance(answer, BaseException)]:
        if len(errors) == len(answers):
            raise errors[0]
        log.warning("some jobs could not be leased: %s", errors[0])  # what the others took is ours to run
    found = [answer for answer in answers if isinstance(answer, list) and answer]
    found.sort(key=_when)  # the server may have taken them in another order; the first has the best
    return [job for jobs in found for job in jobs]


def _when(taken: list[Job]) -> datetime:
    """The moment of a step, by the server's clock: all jobs that it took have it."""
    assert taken[0].started_at is not None
    return taken[0].started_at
