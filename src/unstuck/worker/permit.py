"""Permit: the right to call a handler of a queue that has a rate, looked at where and when the call is made."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from unstuck.protocol.errors import Transient


class NoToken(Transient):
    """There is no token for a job that is ready to start: it is given back, unspent."""


class Ticket(NamedTuple):
    """The right to one start, until a moment on the monotonic clock, which is that many seconds after it was asked for."""

    bucket: str
    stamp: int
    until: float
    slack: float


Another = Callable[[Ticket, bool, bool], Awaitable[Ticket]]


class Permit:
    """A ticket that is on its way to a start, and exchanged if it comes too late.

    Between the worker's decision to start a job and the call of its handler lies what nobody can bound: a busy event
    loop, a free thread, the start of a process. So the code that makes the call awaits :meth:`ready` and calls at once,
    or, in another thread or process, looks at the clock first and reports back when it was :meth:`late`.
    """

    __slots__ = ("_another", "_exchanged", "_since", "_spent", "_ticket", "_waited")

    def __init__(self, ticket: Ticket, another: Another) -> None:
        self._ticket = ticket
        self._another = (
            another  # waits for one: given ours, whether that was too late, and whether for the second time
        )
        self._spent = False  # a second call needs a ticket of its own
        self._exchanged = False
        self._waited = 0.0
        self._since: float | None = None

    async def ready(self) -> float:
        """The moment up to which the handler may be called now; raises NoToken if there is no ticket to be had soon."""
        while self._spent or time.monotonic() > self._ticket.until:
            self._since = time.monotonic()
            try:
                late = not self._spent
                self._ticket = await self._another(self._ticket, late, late and self._exchanged)
            finally:
                self._waited += time.monotonic() - self._since
                self._since = None
            self._spent, self._exchanged = False, True
        self._spent = True
        return self._ticket.until

    def late(self) -> None:
        """The call was not made: the moment had passed."""
        self._spent = False

    @property
    def waited(self) -> float:
        """Seconds in which a ticket was waited for, which are none of the handler's time."""
        return self._waited + (0.0 if self._since is None else time.monotonic() - self._since)
