"""The Store protocol: all that the engine asks of a place where jobs live, in six roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from unstuck.protocol.availability import Clock
from unstuck.protocol.fleet import Fleet, WorkerInfo
from unstuck.protocol.job import Enqueued, Job, Json, NewJob, Ref
from unstuck.protocol.leases import Beat, HeartbeatAnswer, Reclaimed, Recovery, Share
from unstuck.protocol.limits import Grant
from unstuck.protocol.operators import Counts, Event, Filter, Finding, Page
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.protocol.records import Kept, Record


class Lifecycle(Protocol):
    """Opens, prepares and copies a store."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def twin(self) -> Store:
        """Another store on the same data with connections of its own, for another event loop; not opened yet."""
        ...

    async def migrate(self) -> None:
        """Bring the schema up to date. Additive, repeatable, safe from many processes at once.

        It is called after nearly every opening, so it is cheap if there is nothing to do.
        """

    async def clock(self) -> Clock:
        """The time by which leases end and jobs become due."""
        ...


@runtime_checkable
class Leases(Protocol):
    """Takes jobs from producers, hands them to workers, and ends or recovers what they hold."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add the jobs whose ids are new in their queue; with ``again``, start those over that are finished.

        Answers in input order, once the jobs are as durable as the store is set to make them. A job is due ``delay``
        after ``run_at``, else after now; a time in the past is a position further ahead in line. A job that is started over is
        as new (``created_at``, too), except for its fence and its last ending.

        A job with ``debounce`` or ``throttle`` (a *spaced* job) stands for its key, from when it was added, for that interval.
        Meanwhile a throttled one is not added: the answer names the job that stands, which stays as it is, also if it is
        finished or deleted. A debounced one gives all it has, except for its id, to the job that stands, if nobody ever leased that, and
        the interval begins again; ``created_at`` stays. In any other case it is added, and stands from now on.
        """
        ...

    async def lease(self, queues: Mapping[str, Share], limit: int, owner: str) -> list[Job]:
        """Take up to ``limit`` due jobs of queues that are neither paused nor halted, best rank first.

        The rank is ``run_at`` less 60 s for each point of priority; equals go as they came, also within one enqueue.
        Where the shares have turns, those come first, and ranks decide among jobs that stand equal. Of more queues than
        :data:`~unstuck.stores.shared.heads.FEW`, a call that brings as many jobs as it may can leave out a queue that had
        none at the call before.
        Each goes to exactly one caller; it costs an attempt and gets a greater fence. ``started_at`` and
        ``heartbeat_at`` are now, progress and stage empty. A job that :attr:`~unstuck.protocol.job.Job.can_expire`, and whose
        time is over, is not taken.

        The answer ends with the job that brings the payloads, as the store keeps them, to
        :data:`~unstuck.protocol.leases.ANSWER` bytes: fewer jobs than the limit do not mean that there are no more. A store
        of several servers may count for each of them.
        """
        ...

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when a job of a queue that is not paused is due, or after ``timeout``. It may return early for nothing."""

    async def heartbeat(self, worker: WorkerInfo, beats: Sequence[Beat]) -> HeartbeatAnswer:
        """Renew leases, save progress and stage, and record the worker.

        A lease that is not held is cancelled if that is the job's last ending, else lost. A lease that could be neither
        renewed nor found lost, because its table is locked, has no verdict. Workers are forgotten when they
        have been silent for :data:`unstuck.stores.shared.events.REMEMBER_WORKERS`.
        """
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """End leases: state, event, counters, pause or halt, and follow-up jobs together. Answers in input order.

        One call may name a lease twice: the second finds it settled. Without a delay ``run_at`` stays, and with it the
        position in line. The failure is stamped with the time and stays on record until the job is started over, also if
        it completes. Owner, lease and heartbeat are emptied; ``settled`` and ``settled_fence`` say how which lease ended.
        """
        ...

    async def reclaim(self, recovery: Recovery) -> Reclaimed:
        """Take over leases, those first that have been silent longest, and as with ``lease`` no more than ``ANSWER`` allows.

        Also take jobs that were not started in time (:attr:`~unstuck.protocol.job.Job.can_expire`), unless owners are named:
        they are processing then, with the attempts and ``started_at`` that they have, and answered as they were.

        Attempts, progress and stage stay as they are. A job without a lease is given one, with the event
        ``reaper:adopted``; only if that runs out, too, is it taken over. If the clock was put back, so that the last
        heartbeat lies more than a minute ahead, a lease is granted again in its own length. Neither changes fence or owner;
        both count as adopted.
        """
        ...


class Limits(Protocol):
    """Counts the tokens that queues with a rate need, for all workers together."""

    async def take(self, bucket: str, wanted: int = 0, capacity: int = 0, interval: float = 0.0) -> Grant:
        """Take tokens of a bucket that holds ``capacity``; each returns one interval after it was taken.

        Without a number wanted, nothing is taken: the answer says how things stand, and the rate need not be known.
        If the clock was put back, so that a token would return later than :func:`unstuck.protocol.limits.latest`, it
        returns an interval from now.
        """
        ...

    async def give_back(self, bucket: str, count: int = 0, stamp: int = 0, *, close_for: float = 0.0) -> None:
        """Return tokens of one grant that were not used. Others' stay out for as long as they were taken.

        With ``close_for``, no token is granted for so many seconds, because the other side asked for it; a longer closure
        that is in force stays.
        """


class Schedules(Protocol):
    """Lets each slot of a schedule fire once, and knows who is there to fire it."""

    async def tick(
        self,
        schedule: str,
        slot: datetime | None,
        jobs: Sequence[NewJob],
        *,
        instead_of: datetime | None = None,
    ) -> bool:
        """Set the schedule's last slot and enqueue the jobs; false, and nothing done, if it is not later.

        It may be earlier if the last one is ``instead_of``: that is how a schedule begins again after the clock was put
        back. None forgets the schedule, and brings no jobs; false if it was not known.
        """
        ...

    async def fleet(self) -> Fleet:
        """The workers that are remembered, also those that left, and the last slot of every schedule that ever fired."""
        ...


class Records(Protocol):
    """Keeps small facts that all programs of the store share: tokens, endpoints, history by the minute.

    A record has a kind (up to 40 lower-case letters, digits, dashes and underscores, a letter first), and a name of up to
    200 characters that is unique in its kind. Its value is JSON of up to 64 KiB, and not None.
    """

    async def keep(self, kind: str, name: str, value: Json, version: int = 0) -> Kept:
        """Keep a value if the record still has this version; 0 means that there is no record yet. None deletes the record.

        The answer has the record as it is now, also if it was not applied: start again from that. A change that was made
        already is answered as applied: the same value in the next version (for 0, in any), or no record where it should be
        deleted. So a call whose answer was lost can be repeated, and where only one of many callers may win, each puts
        something of its own into the value. A record that is made again has another version than any before.

        None with version 0 changes nothing: that reads one record.
        """
        ...

    async def kept(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        """Records of a kind in the order of their names, by code points, behind the name ``after``.

        An answer has at most :data:`unstuck.protocol.records.PAGE` of them, whatever the limit: ask behind the last name
        until an answer is empty.
        """
        ...

    async def forget(self, kind: str, older_than: float, limit: int = 1000) -> int:
        """Delete records of a kind that were last kept so many seconds ago or earlier, the oldest first."""
        ...


class Operators(Protocol):
    """Shows jobs, queues and events, and changes them by hand."""

    async def find(self, which: Filter, limit: int = 100, cursor: str | None = None) -> Page:
        """Newest first; by their end, if only finished jobs are asked for (:mod:`unstuck.stores.shared.listing`).

        A cursor of another listing is a ``ConfigError``.
        """
        ...

    async def count(self, ahead_of: Ref | None = None) -> list[Counts]:
        """Every queue that has jobs, totals, a pause or a halt, in one consistent view.

        With ``ahead_of``, the queue of that job also says how many due jobs stand before it.
        """
        ...

    async def checkup(self, *, deep: bool = False) -> list[Finding]:
        """What is to be known about the store itself: schema, durability, damage. No job is read for it.

        A ``deep`` one also reads every job, and reports up to a hundred that break a rule which must always hold.
        """
        ...

    async def events(self, after: str | None = None, job: Ref | None = None, limit: int = 100) -> list[Event]:
        """Events in order, from the beginning or behind a cursor; an invalid cursor is the beginning."""
        ...

    async def requeue(self, which: Filter, limit: int = 1000) -> int:
        """Make finished jobs pending again, those first that ended first: due now, counters at 0, the fence going on.

        Start, end, result, progress, stage and ``expires_at`` are emptied; the error, the last ending and its fence stay.
        """
        ...

    async def delete(self, which: Filter, limit: int = 1000) -> int:
        """Delete finished jobs and their events, the oldest first."""
        ...

    async def cancel(self, refs: Sequence[Ref]) -> int:
        """Fail unfinished jobs as :data:`unstuck.stores.shared.events.CANCELLED` says, with a new fence, also as ``settled_fence``.

        A running one's lease is taken over in the same step. The total ``cancelled`` counts them, nothing alerts.
        """
        ...

    async def edit(
        self, refs: Sequence[Ref], *, priority: int | None = None, run_at: datetime | None = None
    ) -> int:
        """Give jobs that are pending another priority or time; answers how many were pending, 0 if neither is given."""
        ...

    async def pause(self, queue: str, why: str | None) -> bool:
        """Stop leasing from a queue: after this returned, nothing of it is leased. A second one has the last word.

        A halt stays, as the reason of a pause stays when its queue is halted. Without a reason, resume the queue: lift its
        pause, its halt or both; false if there was neither.
        """
        ...


class Store(Lifecycle, Leases, Limits, Schedules, Records, Operators, Protocol):
    """A place where jobs live.

    Every method is one atomic step, and may be called again safely after an answer that was lost. Empty input
    means no query. Durations are seconds; the store's own clock turns them into times, in UTC and exact to the
    millisecond. A processing job changes only through its lease: a step that names an old fence leaves the job alone
    and says so. One event loop uses a store, any number of its tasks at once. A store that is not open raises
    ``StoreUnavailable``, one that is not migrated ``SchemaError``, except from ``clock`` and ``checkup``. A store that was
    opened before a fork is not open in the child: closing it there leaves its connections alone, which are the parent's.
    """
