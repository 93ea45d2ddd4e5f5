"""SQLiteWakeup: waits for work by reading the file's change counter, which costs a few microseconds each time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

import apsw

from unstuck.stores.shared.heads import FEW, with_work
from unstuck.stores.shared.values import json_text
from unstuck.stores.sqlite import rows
from unstuck.stores.sqlite.reopening import ReopeningConnection

EVERY = 0.006
Version = tuple[int, int]  # a connection counts for itself: which connection, and its counter
NEVER = (0, 0)
ANY_TIME = 2**62  # milliseconds


class SQLiteWakeup:
    """Has its own connection, because a connection does not see its own changes in the counter."""

    def __init__(self, path: str, work: str, heads: str) -> None:
        # Looking must not block the event loop.
        self._reopening = ReopeningConnection(path, lambda connection: connection.set_busy_timeout(0))
        self._work = work
        self._heads = heads

    def close(self) -> None:
        self._reopening.close()

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when a job of the queues is due, or after ``timeout``."""
        wanted = set(queues)
        end = time.monotonic() + timeout
        seen, due = NEVER, 0.0
        while (left := end - time.monotonic()) > 0:
            version, found = self._look(wanted, seen)
            if found is not None:
                seen, (ready, run_at) = version, found
                due = float("inf") if run_at is None else run_at / 1000
                if ready:
                    return
            if time.time() >= due > 0:
                return
            await asyncio.sleep(min(EVERY, left))

    def _look(self, wanted: set[str], seen: Version) -> tuple[Version, tuple[int, int | None] | None]:
        """The change counter and, if it has changed, whether there is work and when the next job is due."""

        def look(connection: apsw.Connection) -> tuple[Version, tuple[int, int | None] | None]:
            try:
                version = self._reopening.openings, int(connection.pragma("data_version"))
                if version == seen:
                    return version, None
                names = self._with_work(connection, wanted)
                [found] = connection.execute(
                    self._work, {"queues": json_text(list(names)), "now": round(time.time() * 1000)}
                )
            except apsw.BusyError:  # another process recovers the file after a crash: look again
                return NEVER, None
            return version, found

        return self._reopening.use(look)

    def _with_work(self, connection: apsw.Connection, wanted: set[str]) -> Collection[str]:
        if len(wanted) <= FEW:
            return wanted
        found = connection.execute(self._heads, {"most": len(wanted), "until": ANY_TIME}).get
        return with_work(wanted, found and rows.names(found))
