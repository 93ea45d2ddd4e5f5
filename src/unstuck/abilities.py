"""What some stores can do besides the protocol: be part of others' transactions, look after others' tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from unstuck.model import Job, NewJob, Outcome, Worker
from unstuck.store import GRACE, Blind, Clock, Enqueued

Judge = Callable[[Job], Outcome]


class Reaped(NamedTuple):
    """How leases that ran out were ended. ``more`` may have; ``troubles`` are tables that could not be looked at."""

    outcomes: list[Outcome]
    adopted: int
    next_end: float | None
    more: bool = False
    troubles: tuple[str, ...] = ()


class Stuck(Struct, frozen=True, kw_only=True, gc=False):
    """A row that is stuck: for how many seconds, who holds it, what a reaper ``would`` do now, and ``why``."""

    table: str
    id: str
    stage: str
    held_by: str
    heard: float | None  # seconds ago
    ended: float | None  # its lease, seconds ago
    attempts: int
    max_attempts: int
    would: str
    why: str


@runtime_checkable
class Joinable(Protocol):
    """A store whose jobs can be part of somebody else's transaction: they exist if and when that commits.

    The connection is only used: whoever began the transaction ends it. Errors leave as its driver raises them.
    """

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As ``enqueue``, on an asynchronous connection."""
        ...

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As ``enqueue``, on a synchronous connection, in the caller's thread."""
        ...


class Reapable(Protocol):
    """A place whose lost leases are judged and ended in one step, because its jobs cannot be taken over first."""

    async def clock(self) -> Clock: ...

    async def workers(self) -> list[Worker]: ...

    async def reap(
        self,
        judge: Judge,
        limit: int,
        *,
        queues: Sequence[str] | None = None,
        of: str | None = None,
        blind: Sequence[Blind] = (),
        grace: float = GRACE,
    ) -> Reaped:
        """End up to ``limit`` leases a table that ran out (or all of the owner ``of``) as ``judge`` says.

        As in ``Store.reclaim``, blind time does not count, and a row without a lease is given one first.
        """
        ...
