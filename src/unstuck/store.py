"""The Store protocol: all that the engine asks of a place where jobs live."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from msgspec import Struct

from unstuck.model import Beat, Event, Filter, Job, Lease, NewJob, Outcome, Ref, Settled, Verdict, Worker


class Pulse(NamedTuple):
    """The answer to a heartbeat; ``strangers`` are leases of this owner that the call did not name."""

    verdicts: dict[Lease, Verdict]
    strangers: list[Lease]


class Share(NamedTuple):
    """What a lease call wants of one queue, and how many of its jobs may run at a time in all, and per lane.

    With ``per_lane`` the lanes take turns: a lane that has little running comes before one that has much.
    """

    seconds: float
    limit: int
    at_a_time: int | None = None
    per_lane: int | None = None


class Enqueued(Struct, frozen=True, gc=False):
    """``created`` is false when a job with this id existed; ``same`` tells whether its content is equal."""

    queue: str
    id: str
    created: bool
    same: bool = True

    @property
    def ref(self) -> Ref:
        return Ref(self.queue, self.id)


class Reclaimed(NamedTuple):
    """Jobs as they were, but with the new fence; how many got their first lease; when to look again."""

    jobs: list[Job]
    adopted: int
    next_end: float | None


class Clock(NamedTuple):
    """The store's time, and for how many seconds its server has been up (infinite without a server)."""

    now: datetime
    uptime: float = math.inf


class Grant(NamedTuple):
    """Tokens granted now, the seconds until the next one comes free, and a stamp to give these back by."""

    granted: int
    wait: float
    stamp: int = 0


class Bucket(NamedTuple):
    """Tokens that are out, the seconds until the first of them returns, and until the bucket opens again."""

    out: int
    first_back: float
    closed_for: float


class Finding(Struct, frozen=True, gc=False):
    """Something about a store: ``level`` is ok, warning or failure, ``fix`` what to do about it."""

    level: str
    what: str
    fix: str = ""


class Blind(NamedTuple):
    """A span in which holders could not be heard, in seconds before now: from the older to the younger end."""

    since: float
    until: float


class Page(NamedTuple):
    """Some jobs, newest first, and where the next page begins."""

    jobs: list[Job]
    cursor: str | None


class Counts(Struct, frozen=True, kw_only=True):
    """One queue in numbers. ``delayed`` is part of pending, ``expired`` of processing, ``cancelled`` of failed.

    ``waited`` is for how many seconds the next job in line has been due, None if the line is empty.
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


class Store(Protocol):
    """A place where jobs live.

    Every method is one atomic step, and calls it again safely after an answer that was lost. Empty input
    means no query. Durations are seconds; the store's own clock makes times of them. A processing job
    changes only through its lease: a step that names an old fence leaves the job alone and says so.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def twin(self) -> Store:
        """Another store on the same data with connections of its own, not opened yet."""
        ...

    async def migrate(self) -> None:
        """Bring the schema up to date. Additive, repeatable, safe from many processes at once."""

    async def clock(self) -> Clock: ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add the jobs whose ids are new; with ``again``, reset those that are finished.

        Answers in input order, once the jobs are as durable as the store is set to make them.
        """
        ...

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        """Take up to ``limit`` due jobs of queues that are not paused, best rank first.

        Each goes to exactly one caller; it costs an attempt and gets a greater fence.
        """
        ...

    async def heartbeat(self, worker: Worker, beats: Sequence[Beat]) -> Pulse:
        """Renew leases, save progress and stage, and record the worker.

        A lease that could be neither renewed nor found lost, because its table is locked, has no verdict.
        """
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """End leases: state, event, counters and follow-up jobs together. Answers in input order."""
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
        grace: float = 3600.0,
    ) -> Reclaimed:
        """Take over leases that ran out (or all of the owner ``of``, known to be dead) for ``seconds``.

        Attempts stay as they are. Time inside ``blind`` spans does not count against a lease. A processing
        job without a lease end that was silent for ``grace`` is given a lease of ``grace``, and the
        event ``reaper:adopted``; only if that runs out, too, is it taken over.
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

    async def tick(self, schedule: str, slot: datetime, jobs: Sequence[NewJob]) -> bool:
        """Set the schedule's last slot and enqueue the jobs; false, and nothing done, if it is not later."""
        ...

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when there may be work, or after ``timeout``. May return early for nothing."""

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page: ...

    async def count(self) -> list[Counts]:
        """Every queue in numbers, in one consistent view."""
        ...

    async def workers(self) -> list[Worker]: ...

    async def checkup(self) -> list[Finding]:
        """What can be said of the place itself: schema, durability, damage. Also of one not migrated yet."""
        ...

    async def verify(self) -> list[str]:
        """Rules that must always hold and do not, in words, up to a hundred."""
        ...

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        """Events in order, from the beginning or behind a cursor."""
        ...

    async def requeue(self, which: Filter, limit: int = 1000) -> int:
        """Make finished jobs pending again, counters at 0, the fence going on."""
        ...

    async def delete(self, which: Filter, limit: int = 1000) -> int:
        """Delete finished jobs and their events, the oldest first."""
        ...

    async def cancel(self, refs: Sequence[Ref]) -> int:
        """Fail unfinished jobs with the code ``cancelled``, taking a running one's lease over in the same step."""
        ...

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        """Give jobs that are pending another priority or time; answers how many that were."""
        ...

    async def place(self, ref: Ref) -> int:
        """How many due jobs of its queue stand before a due job in line, counted up to ten thousand."""
        ...

    async def pause(self, queue: str, why: str) -> None:
        """Stop leasing from a queue: after this returned, nothing of it is leased."""

    async def resume(self, queue: str) -> bool:
        """Lift a pause; false if there was none."""
        ...
