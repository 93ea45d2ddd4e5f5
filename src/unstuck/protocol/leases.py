"""Leases as workers and reapers see them: what they ask for, and what a store answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from unstuck.protocol.availability import Blind
from unstuck.protocol.job import Job, Json, Lease

ANSWER = 16 * 1024 * 1024  # bytes of payloads with which the answer of a lease or reclaim ends
PASSED_BY = 1000  # jobs, beyond its limit, that a lease of only new ones looks at
GRACE = 3600.0  # seconds for which a job without a lease may be silent before it is given one


class Share(NamedTuple):
    """What a lease call wants of one queue, and how many of its jobs may run at a time in all, and per lane.

    With ``per_lane`` the lanes take turns: a job's turn is how many of its lane run or stand before it, and the lowest
    goes first. Jobs without a lane have no turn to wait for and count in no lane. A job whose lease ran out still counts as running.
    ``max_crashes`` is for jobs that another system enqueued, which come without a crash budget.

    With ``only_new`` jobs that ended a lease before (:attr:`Job.settled`) are left to workers that have room, and so is
    the room that a limit has for them. Jobs behind them are taken, unless they stand more than ``PASSED_BY`` jobs beyond
    what was asked for; where lanes take turns only those are taken that would also be taken otherwise.

    Among queues ``turn`` and ``step`` decide: the first job taken of a queue stands at its turn, each further one a step
    behind the one before, and the lowest goes first. With ranks alone, as without turns and steps, all queues are one line.
    """

    seconds: float
    limit: int
    at_a_time: int | None = None
    per_lane: int | None = None
    max_crashes: int | None = None
    only_new: bool = False
    turn: float = 0.0
    step: float = 0.0

    def stands(self, number: int) -> float:
        """Where a job stands among those of other queues; 0 is the first that is taken of this queue."""
        return self.turn + number * self.step


class Verdict(StrEnum):
    """What a heartbeat learns about a lease."""

    HELD = "held"
    LOST = "lost"
    CANCELLED = "cancelled"


class Beat(Struct, frozen=True, gc=False):
    """One sign of life: renew ``lease`` for ``seconds``; None leaves progress and stage as they are."""

    lease: Lease
    seconds: float
    progress: Json = None
    stage: str | None = None


class HeartbeatAnswer(NamedTuple):
    """The verdict on each lease; ``strangers`` are leases of this owner that the call did not name."""

    verdicts: dict[Lease, Verdict]
    strangers: list[Lease]


class Recovery(Struct, frozen=True, gc=False):
    """Which leases a reaper takes over, for how long and in which name. ``queues`` None means all of them.

    With ``of``, all leases of these owners, which are known to be dead; else those that ran out. Time inside ``blind``
    spans, as far as it came after the last heartbeat, does not count against a lease. Nor does time after ``as_of``, when the
    caller read this store's clock: it may have waited since, and holders with it.
    A processing job without a lease that was silent for ``grace`` is given a lease of ``grace`` first.
    """

    owner: str
    seconds: float
    limit: int
    queues: Sequence[str] | None = None
    of: Sequence[str] | None = None
    blind: Sequence[Blind] = ()
    as_of: datetime | None = None
    grace: float = GRACE


class Reclaimed(NamedTuple):
    """Jobs as they were, but with the new fence; how many were given a lease; in how many seconds the next one ends.

    ``next_end`` is of leases that have not ended yet, whatever ``blind`` forgives, and of jobs that will expire, and None
    without any.
    """

    jobs: list[Job]
    adopted: int
    next_end: float | None
