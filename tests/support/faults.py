"""What is wrong with the proxy's network now, and what came of it so far."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from math import isinf


@dataclass(slots=True)
class Counts:
    """Only ever grow. ``from_*`` is bytes taken in, ``to_*`` bytes passed on."""

    accepted: int = 0
    resets: int = 0
    cuts: int = 0
    replies_dropped: int = 0
    from_client: int = 0
    to_server: int = 0
    from_server: int = 0
    to_client: int = 0


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes pass, each chunk after ``delay``; never, if that is infinite."""

    delay: float = 0.0
    reset_new: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection on which the server's ``left``-th byte from now comes."""

    left: int


@dataclass(frozen=True, slots=True)
class DropReply:
    """Swallow the reply to the next request that contains ``to``, until ``quiet`` seconds bring no more of it."""

    to: bytes
    quiet: float


Fault = Flow | Cut | DropReply


class Faults:
    """The one fault in force, shared by all connections, and the counts."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.now: Fault = Flow()
        self._changed = asyncio.Event()

    def enter(self, fault: Fault) -> None:
        self.now = fault
        self._changed.set()
        self._changed = asyncio.Event()

    async def hold(self) -> None:
        """Wait for as long as a chunk that just came in has to wait; a new fault sets new terms."""
        clock = asyncio.get_running_loop().time
        since = clock()
        while isinstance(self.now, Flow) and (left := since + self.now.delay - clock()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if isinf(left) else left):
                    await self._changed.wait()
