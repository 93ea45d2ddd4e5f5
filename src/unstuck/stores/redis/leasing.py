"""Leases many jobs in several short steps. Each blocks the server for a shorter time, and we read the jobs of one step
while the server takes the next ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from unstuck.protocol.errors import StoreError
from unstuck.protocol.job import Job
from unstuck.protocol.leases import ANSWER, PASSED_BY, Share
from unstuck.stores.shared.values import milliseconds

log = logging.getLogger("unstuck.redis")

AT_ONCE = 200  # jobs in one step

Leasing = Callable[[Mapping[str, Share], int, str, int], Awaitable[list[Job]]]


def facts(shares: Iterable[Share], limit: int) -> dict[str, Any]:
    """What lease.lua reads of the request."""
    wanted = [
        [
            milliseconds(share.seconds),
            share.limit,
            share.at_a_time,
            share.per_lane,
            share.max_crashes,
            share.only_new,
            share.turn,
            share.step,
        ]
        for share in shares
    ]
    return {"shares": wanted, "limit": limit, "passed_by": PASSED_BY}


async def in_parts(lease: Leasing, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
    """Lease in one step from several queues, because it compares them; in consecutive steps from one queue."""
    if len(queues) != 1 or limit <= AT_ONCE:
        return await lease(queues, limit, owner, ANSWER)
    [(queue, share)] = queues.items()
    many = min(limit, share.limit)
    sizes = [min(AT_ONCE, many - taken) for taken in range(0, many, AT_ONCE)]
    most = ANSWER // len(sizes)  # bytes: no step knows what the others take
    steps = [lease({queue: share._replace(limit=size)}, size, owner, most) for size in sizes]
    answers = await asyncio.gather(*steps, return_exceptions=True)
    if errors := [answer for answer in answers if isinstance(answer, BaseException)]:
        if len(errors) == len(answers):
            raise errors[0]
        log.warning(
            "some jobs could not be leased: %s", errors[0]
        )  # we hold the jobs that the other steps took, so run them
    found = [answer for answer in answers if isinstance(answer, list) and answer]
    found.sort(key=_when)  # the server may have run the steps in another order; the first has the best jobs
    return [job for jobs in found for job in jobs]


async def with_more(taken: list[Job], more: Awaitable[list[Job]]) -> list[Job]:
    """The jobs of one step and of another. If the second fails, the first ones are returned: we hold them."""
    try:
        return [*taken, *await more]
    except StoreError as error:
        if not taken:
            raise
        log.warning("some jobs could not be leased: %s", error)
        return taken


def _when(taken: list[Job]) -> datetime:
    """The moment of a step by the server's clock, which all jobs that it took have."""
    assert taken[0].started_at is not None
    return taken[0].started_at
