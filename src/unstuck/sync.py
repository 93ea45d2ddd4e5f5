"""portal(): one event loop in one thread, for callers that have none."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    """Runs coroutines on a loop of its own and waits for their results."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="unstuck-portal", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


_opening = threading.Lock()
# A forked child has its parent's portal but not its thread, so it opens one of its own. The old one is kept:
# letting go of it would close database connections that belong to the parent.
_portals: list[Portal] = []


def portal() -> Portal:
    with _opening:
        if not _portals or _portals[-1].process != os.getpid():
            _portals.append(Portal())
        return _portals[-1]
