"""What the conformance suite needs to know about a store, in addition to the Store protocol."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

from unstuck.protocol.availability import Clock
from unstuck.protocol.job import Ref
from unstuck.protocol.store import Store
from unstuck.stores import open_store


class Harness(Protocol):
    """An empty store, open and migrated, and the two things that tests must do behind its back.

    The store is empty at the start of every test. ``open_store(url)`` gives it in any process.
    """

    url: str
    store: Store

    async def another(self) -> Store:
        """A further client of the same data, as another process would have; closed with the harness."""
        ...

    async def age(self, seconds: float) -> None:
        """Move every stored time into the past, so that leases end and delays pass without waiting.

        That is all times of jobs and what their order was made of, of events, workers (``started_at``, ``seen_at``),
        tokens, closed buckets, slots, pauses, records and the intervals of keys, in one atomic step; a negative number is a clock that was put back.
        A store that has a server gives it the years, too: ``grow_old``.
        """

    async def forget_lease(self, ref: Ref) -> None:
        """Make a processing job look as a worker leaves it that knows nothing of leases.

        ``lease_until`` and ``heartbeat_at`` become None, everything else stays.
        """


def grow_old(store: Store, aged: Callable[[], float]) -> Store:
    """Let a store's server have been up for as much longer as everything else was made older.

    Else it would seem to have started after the leases were granted, and their holders would be waited for.
    """
    clock = store.clock

    async def aged_clock() -> Clock:
        now, uptime = await clock()
        return Clock(now, uptime + aged())

    store.clock = aged_clock  # type: ignore[method-assign]
    return store


class Clients:
    """The clients of one store, which are closed together."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.aged = 0.0  # seconds by which all stored times were moved
        self._opened = AsyncExitStack()

    async def another(self) -> Store:
        store = await self._opened.enter_async_context(open_store(self.url))
        await store.migrate()
        return grow_old(store, lambda: self.aged)

    async def close(self) -> None:
        await self._opened.aclose()


def with_option(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"
