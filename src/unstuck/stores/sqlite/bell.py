"""Waits for work by looking at the file's change counter, which costs a few microseconds a look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import apsw

from unstuck.stores.sqlite.connection import connect
from unstuck.stores.sqlite.plainly import speaking_plainly
from unstuck.stores.values import json_text

EVERY = 0.006


class Bell:
    """Its own connection, because a connection does not see its own changes in the counter."""

    def __init__(self, path: str, work: str) -> None:
        self._path = path
        self._connection = connect(path)
        self._connection.set_busy_timeout(0)  # a look must not hold up the event loop
        self._work = work

    def close(self) -> None:
        self._connection.close()

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when a job of the queues is due, or after ``timeout``."""
        wanted = json_text(queues)
        end = time.monotonic() + timeout
        seen, due = -1, 0.0
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

    def _look(self, wanted: str | None, seen: int) -> tuple[int, tuple[int, int | None] | None]:
        """The change counter, and what there is to do if it is another than before."""
        with speaking_plainly(self._path):
            try:
                version = int(self._connection.pragma("data_version"))
                if version == seen:
                    return version, None
                [found] = self._connection.execute(self._work, {"queues": wanted})
            except apsw.BusyError:  # somebody recovers the file after a crash: look again
                return -1, None
            return version, found
