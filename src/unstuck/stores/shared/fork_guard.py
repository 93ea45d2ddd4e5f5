"""ForkGuard: which process opened a store. A fork copies the store, but neither its threads nor the right to use its connections."""

from __future__ import annotations

import os

from unstuck.protocol.errors import StoreUnavailable


class ForkGuard:
    """Remembers the process that created it."""

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is another process: a child that was forked later."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Raise in every process but the one that opened the store."""
        if os.getpid() != self._process:  # as forked says; each enqueue asks
            raise StoreUnavailable(
                f"the store was opened by process {self._process}, of which this process ({os.getpid()}) is a fork: open it "
                "again here, on an event loop of its own (asyncio.run), or use the _sync methods, which do so by themselves"
            )
