"""Leases of many queues: only queues that have jobs are looked at, and these are found without asking for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from unstuck.protocol.errors import StoreError
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Share

log = logging.getLogger("unstuck.stores")

FEW = 8  # queues, up to which it is cheaper to look at each


def with_work(queues: Collection[str], found: Iterable[str] | None) -> Collection[str]:
    """Those of the queues that were found. None means that more were found than the caller asks about: look at each."""
    return queues if found is None else [name for name in dict.fromkeys(found) if name in queues]


class ManyQueues:
    """For a store on a server: leases from the queues that had jobs at the last call while it asks which have some now, so
    that both are one round trip. What the first leave of the limit is then taken from the others."""

    def __init__(self) -> None:
        self._had_work: Collection[str] = ()

    async def lease(
        self,
        queues: Mapping[str, Share],
        limit: int,
        lease: Callable[[Mapping[str, Share], int], Awaitable[list[Job]]],
        find: Callable[[], Awaitable[Collection[str]]],
    ) -> list[Job]:
        known = {name: queues[name] for name in self._had_work if name in queues}
        leased, found = await asyncio.gather(lease(known, limit), find(), return_exceptions=True)
        if isinstance(leased, BaseException):
            raise leased
        try:
            if isinstance(found, BaseException):
                raise found
            self._had_work = found
            others = {name: queues[name] for name in found if name not in known}
            return leased + await lease(others, limit - len(leased))
        except StoreError as error:
            if not leased:
                raise
            log.warning("some jobs could not be leased: %s", error)  # we hold the others, so run them
            return leased
