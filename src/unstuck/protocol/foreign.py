"""What some stores can do beyond the protocol: join a caller's transaction, let parents wait, look after foreign tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from msgspec import Struct

from unstuck.protocol.availability import Clock, Seen
from unstuck.protocol.fleet import Fleet
from unstuck.protocol.job import Enqueued, Job, NewJob, Ref
from unstuck.protocol.leases import Recovery
from unstuck.protocol.operators import Counts, Finding
from unstuck.protocol.outcome import Outcome

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
    last_sign: float | None  # of its holder, seconds ago
    ended: float | None  # its lease, seconds ago
    attempts: int
    max_attempts: int
    would: str
    why: str


@runtime_checkable
class Joinable(Protocol):
    """A store whose jobs can be part of a caller's transaction: they exist if and when that commits.

    The connection is only used: the caller began the transaction and ends it. The driver's errors are raised as they are.
    """

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As ``enqueue``, on an asynchronous connection."""
        ...

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As ``enqueue``, on a synchronous connection, in the caller's thread."""
        ...


class Children(NamedTuple):
    """How many jobs a parent waits for, and some of them."""

    many: int
    some: list[Ref]


@runtime_checkable
class Parental(Protocol):
    """A store whose jobs can be parents, which are not run before their children have ended."""

    async def children(self, ref: Ref) -> Children | None:
        """Those that a job waits for; None if it waits for none."""
        ...


@runtime_checkable
class Adopting(Protocol):
    """A store some of whose queues are tables that belong to others."""

    def is_table(self, queue: str) -> bool: ...


@runtime_checkable
class ForeignTables(Protocol):
    """A place with tables that belong to others, whose leases are judged and ended in one step: its rows cannot be taken over."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def migrate(self) -> None:
        """As ``Store.migrate``. Nothing is added to the tables themselves without being asked to."""

    async def clock(self) -> Clock: ...

    async def fleet(self) -> Fleet: ...

    async def count(self) -> list[Counts]:
        """The tables in numbers, each as the queue of its name."""
        ...

    async def checkup(self) -> list[Finding]:
        """What the tables lack, and what is odd about them. Reads only."""
        ...

    async def stuck(self, judge: Judge, seen: Seen, grace: float, limit: int) -> list[Stuck]:
        """Up to ``limit`` rows of each table that a reaper would deal with, and how. Reads only."""
        ...

    async def reap(self, judge: Judge, recovery: Recovery) -> Reaped:
        """End leases as ``judge`` says: in each table up to ``recovery.limit`` of those that ``Store.reclaim`` would take over.

        Rows without a lease are given one first. ``owner`` and ``seconds`` of the recovery have no meaning here: the leases
        are ended in the same step.
        """
        ...
