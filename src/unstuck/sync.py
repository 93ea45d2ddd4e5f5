"""portal(): one event loop in one thread, for callers that have none."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import warnings
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


def portal(*, inside_a_loop: bool = False) -> Portal:
    """The portal of this process.

    Whoever calls from inside a running event loop, and does not say that it is meant, is warned, by default once for
    each place in its code. It is no error: it works, and in a notebook there is nobody to be held up.
    """
    if not inside_a_loop and _loop_runs():
        warnings.warn(
            "this waits for the store while an event loop runs in the same thread, and holds up everything on it: "
            "use the same without _sync and await it, as in await task.enqueue(…) and await handle.result()",
            RuntimeWarning,
            stacklevel=_outside(),
        )
    with _opening:
        if not _portals or _portals[-1].process != os.getpid():
            _portals.append(Portal())
        return _portals[-1]


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _outside() -> int:
    """How many calls up the code is that is not ours, as ``warnings.warn`` counts them for who asks here."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - the only way to name the caller's line on Python 3.11
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "unstuck":
        level, frame = level + 1, frame.f_back
    return level
