"""portal(): one event loop in one thread, for callers that have none."""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import sys
import threading
import warnings
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    """Runs coroutines on a loop of its own and waits for their results."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        threading.Thread(target=self._loop.run_forever, name="unstuck-portal", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def disown(self) -> None:
        """In a forked child: part from what the kernel knows of the loop, which both processes would change together."""
        if isinstance(self._selector, getattr(selectors, "EpollSelector", ())):
            with select.epoll() as own:
                os.dup2(own.fileno(), self._selector.fileno(), inheritable=False)


class _Portals:
    """The portal of this process, and those of the processes that it was forked from.

    A forked child has its parent's portal but not its thread, so it opens one of its own. The old one is kept:
    letting go of it would close database connections that belong to the parent.
    """

    def __init__(self) -> None:
        self.opening = threading.Lock()
        self.current: Portal | None = None
        self.inherited: list[Portal] = []

    def before_fork(self) -> None:
        self.opening.acquire()

    def after_in_parent(self) -> None:
        self.opening.release()

    def after_in_child(self) -> None:
        self.opening.release()
        if self.current is not None:
            self.current.disown()
            self.inherited.append(self.current)
            self.current = None


_portals = _Portals()
os.register_at_fork(
    before=_portals.before_fork,
    after_in_parent=_portals.after_in_parent,
    after_in_child=_portals.after_in_child,
)


def portal(*, inside_a_loop: bool = False) -> Portal:
    """The portal of this process.

    A call from inside a running event loop is warned about, unless ``inside_a_loop`` says that it is meant, by default once
    for each line of the caller. It is not an error: it works, and in a notebook nobody else is held up.
    """
    if not inside_a_loop and _loop_runs():
        warnings.warn(
            "this waits for the store while an event loop runs in the same thread, and holds up everything on it: "
            "use the same without _sync and await it, as in await task.enqueue(…) and await handle.result()",
            RuntimeWarning,
            stacklevel=_outside(),
        )
    with _portals.opening:
        if _portals.current is None:
            _portals.current = Portal()
        return _portals.current


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _outside() -> int:
    """How many calls up the first code outside of this package is, as ``warnings.warn`` counts levels for our caller."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - the only way to name the caller's line on Python 3.11
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "unstuck":
        level, frame = level + 1, frame.f_back
    return level
