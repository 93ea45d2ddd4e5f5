"""The Store protocol: all that the engine asks of a place where jobs live."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from msgspec import Struct

from unstuck.model import Beat, Event, Filter, Job, Lease, NewJob, Outcome, Ref, Settled, Verdict, Worker
from unstuck.tokens import Bucket, Grant

GRACE = 3600.0  # seconds for which a job without a lease may be silent before it is given one


class Pulse(NamedTuple):
    """The answer to a heartbeat; ``strangers`` are leases of this owner that the call did not name."""

    verdicts: dict[Lease, Verdict]
    strangers: list[Lease]


class Share(NamedTuple):
    """What a lease call wants of one queue, and how many of its jobs may run at a time in all, and per lane.

    With ``per_lane`` the lanes take turns: a job's turn is how many of its lane run or stand before it, and the lowest
    goes first. Jobs without a lane wait for nobody's turn and count in no lane. Jobs whose lease ran out still run.
    """

    seconds: float
    limit: int
    at_a_time: int | None = None
    per_lane: int | None = None


class Enqueued(Struct, frozen=True, gc=False):
    """``created`` is false when a job with this id existed; ``same`` tells whether its digest is equal."""

    queue: str
    id: str
    created: bool
    same: bool = True

    @property
    def ref(self) -> Ref:
        return Ref(self.queue, self.id)


class Reclaimed(NamedTuple):
    """Jobs as they were, but with the new fence; how many were given a lease; in how many seconds the next one ends.

    ``next_end`` is of leases that have not ended yet, whatever ``blind`` forgives, and None without any.
    """

    jobs: list[Job]
    adopted: int
    next_end: float | None


class Clock(NamedTuple):
    """The store's time, and for how many seconds its server has been up (infinite without a server)."""

    now: datetime
    uptime: float = math.inf


class Finding(Struct, frozen=True, gc=False):
    """Something about a store: ``level`` is ok, warning or failure, ``fix`` what to do about it."""

    level: str
    what: str
    fix: str = ""


class Blind(NamedTuple):
    """A span in which holders could not be heard, in seconds before now, the older end first. Those of a call do not overlap."""

    since: float
    until: float


class Page(NamedTuple):
    """Some jobs, and where the next page begins, None behind the last."""

    jobs: list[Job]
    cursor: str | None


class Counts(Struct, frozen=True, kw_only=True):
    """One queue in numbers. ``delayed`` is part of pending, ``expired`` of processing, ``cancelled`` of failed.

    ``waited`` is for how many seconds the next in line has been due, or one not given its place there yet, if that is longer;
    None if none is due. ``totals`` counts all that was settled: each word, ``crashed`` and :func:`~.telling.reaped` once more.
    """

    queue: str
    pending: int = 0
    delayed: int = 0
    processing: int = 0
    expired: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    waited: float | None = None
    paused: str | None = None
    totals: Mapping[str, int] = {}
    trouble: str | None = None  # why they could not be counted: the table is locked, or not what it was

    @property
    def due(self) -> int:
        return self.pending - self.delayed

    @property
    def dead(self) -> int:
        return self.failed - self.cancelled

    @property
    def halted(self) -> bool:
        """Whether it is paused because of a CRITICAL error, which the reason begins with."""
        return self.paused is not None and self.paused.startswith("CRITICAL")


class Store(Protocol):
    """A place where jobs live.

    Every method is one atomic step, and may be called again safely after an answer that was lost. Empty input
    means no query. Durations are seconds; the store's own clock makes times of them, in UTC and exact to the
    millisecond. A processing job changes only through its lease: a step that names an old fence leaves the job alone
    and says so. One event loop uses a store, any number of its tasks at once. One that is not open raises
    ``StoreUnavailable``, one that is not migrated ``SchemaError``, except from ``clock`` and ``checkup``.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def twin(self) -> Store:
        """Another store on the same data with connections of its own, for another event loop; not opened yet."""
        ...

    async def migrate(self) -> None:
        """Bring the schema up to date. Additive, repeatable, safe from many processes at once.

        Called behind nearly every opening, so cheap if there is nothing to do.
        """

    async def clock(self) -> Clock: ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add the jobs whose ids are new in their queue; with ``again``, start those over that are finished.

        Answers in input order, once the jobs are as durable as the store is set to make them. A job is due ``delay``
        after ``run_at``, else after now; a time in the past is a place further ahead in line. What is started over is
        as new (``created_at``, too), except for its fence and its last word.
        """
        ...

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        """Take up to ``limit`` due jobs of queues that are not paused, best rank first.

        The rank is ``run_at`` less 60 s for each point of priority; equals go as they came, also within one enqueue.
        Each goes to exactly one caller; it costs an attempt and gets a greater fence. ``started_at`` and
        ``heartbeat_at`` are now, progress and stage empty.
        """
        ...

    async def heartbeat(self, worker: Worker, beats: Sequence[Beat]) -> Pulse:
        """Renew leases, save progress and stage, and record the worker.

        A lease that is not held is cancelled if that is the job's last word, else lost. Workers are forgotten when they
        have been silent for :data:`unstuck.stores.telling.REMEMBER_WORKERS`.
        A lease that could be neither renewed nor found lost, because its table is locked, has no verdict.
        """
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """End leases: state, event, counters, pause and follow-up jobs together. Answers in input order.

        One call may name a lease twice: the second finds it settled. Without a delay ``run_at`` stays, and with it the
        place in line. The failure is stamped with the time and stays on record until the job is started over, also if it
        completes. Owner, lease and heartbeat are emptied; ``settled`` and ``settled_fence`` say how which lease ended.
        """
        ...

    async def reclaim(
        self,
        queues: Sequence[str] | None,
        seconds: float,
        limit: int,
        owner: str,
        *,
        of: str | None = None,
        blind: Sequence[Blind] = (),
        grace: float = GRACE,
    ) -> Reclaimed:
        """Take over leases that ran out (or all of the owner ``of``, known to be dead) for ``seconds``.

        The longest silent first. Attempts, progress and stage stay as they are. Time inside ``blind`` spans, as far as it
        came after the last heartbeat, does not count against a lease. A processing job without a lease end that was
        silent for ``grace`` is given a lease of ``grace``, and the event ``reaper:adopted``; only if that runs out, too,
        is it taken over. If the clock was put back, so that the last heartbeat lies more than a minute ahead, a lease is
        granted anew in its own length. Neither changes fence or owner; both count as adopted.
        """
        ...

    async def take(self, bucket: str, wanted: int, capacity: int, interval: float) -> Grant:
        """Take tokens; each returns one interval after it was taken."""
        ...

    async def give_back(self, bucket: str, count: int, stamp: int) -> None:
        """Return tokens of one grant that were not used. Others' stay out for as long as they were taken."""

    async def close(self, bucket: str, seconds: float) -> None:
        """Grant no token of the bucket for so long; a longer closure that is in force stays."""

    async def bucket(self, name: str) -> Bucket:
        """How things stand with a bucket; nothing is taken."""
        ...

    async def slot(self, schedule: str) -> datetime | None:
        """For which slot the schedule fired last."""
        ...

    async def slots(self) -> dict[str, datetime]:
        """Every schedule that ever fired, and for which slot it fired last."""
        ...

    async def tick(self, schedule: str, slot: datetime, jobs: Sequence[NewJob]) -> bool:
        """Set the schedule's last slot and enqueue the jobs; false, and nothing done, if it is not later."""
        ...

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when a job of a queue that is not paused is due, or after ``timeout``. May return early for nothing."""

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        """Newest first; by their end, if only finished jobs are asked for (:mod:`unstuck.stores.listing`).

        A cursor of another listing is a ``ConfigError``.
        """
        ...

    async def count(self) -> list[Counts]:
        """Every queue that has jobs, totals or a pause, in one consistent view."""
        ...

    async def workers(self) -> list[Worker]:
        """Those that are remembered, also if they left, the one heard last first."""
        ...

    async def checkup(self) -> list[Finding]:
        """What can be said of the place itself at little cost: schema, durability, damage. No job is read for it."""
        ...

    async def verify(self) -> list[str]:
        """Rules that must always hold and do not, in words, up to a hundred, by reading every job."""
        ...

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        """Events in order, from the beginning or behind a cursor; one that is none is the beginning."""
        ...

    async def requeue(self, which: Filter, limit: int = 1000) -> int:
        """Make finished jobs pending again, those first that ended first: due now, counters at 0, the fence going on.

        Start, end, result, progress and stage are emptied; the error, the last word and its fence stay.
        """
        ...

    async def delete(self, which: Filter, limit: int = 1000) -> int:
        """Delete finished jobs and their events, the oldest first."""
        ...

    async def cancel(self, refs: Sequence[Ref]) -> int:
        """Fail unfinished jobs as :data:`unstuck.stores.telling.CANCELLED` says, with a new fence, also as ``settled_fence``.

        A running one's lease is taken over in the same step. The total ``cancelled`` counts them, nothing alerts.
        """
        ...

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        """Give jobs that are pending another priority or time; answers how many that were, 0 if neither is given."""
        ...

    async def place(self, ref: Ref) -> int:
        """How many due jobs of its queue stand before a due job in line, counted up to ten thousand; else 0."""
        ...

    async def pause(self, queue: str, why: str) -> None:
        """Stop leasing from a queue: after this returned, nothing of it is leased. A second one has the last word."""

    async def resume(self, queue: str) -> bool:
        """Lift a pause; false if there was none."""
        ...
