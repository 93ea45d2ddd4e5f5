"""Permit: the right to call a handler of a queue that has a rate, looked at where and when the call is made."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from msgspec import Struct

from unstuck.protocol.errors import Transient


class NoToken(Transient):
    """There is no token for a job that is ready to start: it is given back, unspent."""


class Ticket(NamedTuple):
    """The right to one start, until a moment on the monotonic clock, which is that many seconds after it was asked for."""

    bucket: str
    stamp: int
    until: float
    slack: float


class RateState(Struct, frozen=True):
    """A rate, and how things stand with its tokens: ``out`` are in use, of which the first returns in ``first_back`` seconds.

    ``closed_for`` seconds no token is granted, because the other side asked for it.
    """

    count: int
    per: float
    out: int
    first_back: float
    closed_for: float


class Tokens(Protocol):
    """Where tickets come from, and where they go back to."""

    async def another(self, ticket: Ticket, late: bool, again: bool) -> Ticket:
        """A ticket for a start in place of one: was that too ``late``, and is it so for the second time?"""
        ...

    async def more(self, bucket: str, patience: float) -> Ticket:
        """One more; raises NoToken if there is none within so many seconds."""
        ...

    async def put_back(self, ticket: Ticket) -> None: ...

    async def state(self, bucket: str) -> RateState: ...


class Permit:
    """A ticket that is on its way to a start, and exchanged if it comes too late.

    Between the worker's decision to start a job and the call of its handler lies what nobody can bound: a busy event
    loop, a free thread, the start of a process. So the code that makes the call awaits :meth:`ready` and calls at once,
    or, in another thread or process, looks at the clock first and reports back when it was :meth:`late`.
    """

    __slots__ = ("_exchanged", "_requested", "_since", "_spent", "_ticket", "_tokens", "_waited")

    def __init__(self, ticket: Ticket, tokens: Tokens) -> None:
        self._ticket = ticket
        self._tokens = tokens
        self._spent = False  # a second call needs a ticket of its own
        self._exchanged = False
        self._requested = False  # whether the ticket of the start was used for a request, or given back
        self._waited = 0.0
        self._since: float | None = None

    async def ready(self) -> float:
        """The moment up to which the handler may be called now; raises NoToken if there is no ticket to be had soon."""
        while self._spent or time.monotonic() > self._ticket.until:
            late = not self._spent
            with self._waiting():
                self._ticket = await self._tokens.another(self._ticket, late, late and self._exchanged)
            self._spent, self._exchanged = False, True
        self._spent = True
        return self._ticket.until

    def late(self) -> None:
        """The call was not made: the moment had passed."""
        self._spent = False

    async def request(self, patience: float) -> None:
        """The right to one request: the first has the ticket of the start, unless that is too old by now."""
        if self._requested or time.monotonic() > self._ticket.until:
            await self.give_back()
            with self._waiting():
                await self._tokens.more(self._ticket.bucket, patience)
        self._requested = True

    async def give_back(self) -> None:
        """The start made no request."""
        if not self._requested:
            self._requested = True
            await self._tokens.put_back(self._ticket)

    async def state(self) -> RateState:
        return await self._tokens.state(self._ticket.bucket)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._waited += time.monotonic() - self._since
            self._since = None

    @property
    def waited(self) -> float:
        """Seconds in which a ticket was waited for, which are none of the handler's time."""
        return self._waited + (0.0 if self._since is None else time.monotonic() - self._since)
