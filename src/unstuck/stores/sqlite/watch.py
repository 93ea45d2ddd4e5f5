"""Waits for work by looking at the file's change counter, which costs a few microseconds a look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import apsw

from unstuck.stores.sqlite.connection import connect
from unstuck.stores.sqlite.rows import json_text

EVERY = 0.006


class Watch:
    """Its own connection, because a connection does not see its own changes in the counter."""

    def __init__(self, path: str, work: str) -> None:
        self._connection = connect(path, patience=0.0)
        self._work = work

    def close(self) -> None:
        self._connection.close()

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when a job of the queues is due, or after ``timeout``."""
        wanted = json_text(queues)
        end = time.monotonic() + timeout
        seen, due = -1, 0.0
        while (left := end - time.monotonic()) > 0:
            try:
                if (version := self._connection.pragma("data_version")) != seen:
                    [(ready, run_at)] = self._connection.execute(self._work, {"queues": wanted})
                    seen, due = version, float("inf") if run_at is None else run_at / 1000
                    if ready:
                        return
            except apsw.BusyError:  # somebody recovers the file after a crash: look again
                seen = -1
            if time.time() >= due > 0:
                return
            await asyncio.sleep(min(EVERY, left))
