"""The protocol in plain Python: what a store must do, small enough to be believed by reading."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from unstuck.protocol.job import Ending, Lease, NewJob, Status
from unstuck.protocol.leases import Share, Verdict
from unstuck.protocol.outcome import Outcome, Settled


@dataclass(slots=True)
class Row:
    """One job. Times are seconds of the model's own clock."""

    new: NewJob
    run_at: float
    status: Status = Status.PENDING
    attempts: int = 0
    crashes: int = 0
    fence: int = 0
    owner: str | None = None
    lease_until: float = 0.0
    settled: tuple[int, Ending] | None = None
    expires_at: float = math.inf

    def before(self, other: Row) -> bool:
        """Whether it goes first on every store: as urgent and due before, or more urgent and not due later.

        Of an urgent job and a plain one that waited for longer either may be first; the bound has tests of its own.
        """
        if self.new.priority == other.new.priority:
            return self.run_at + 1.0 < other.run_at
        return self.new.priority > other.new.priority and self.run_at <= other.run_at


def turns(
    line: Mapping[str, Sequence[float]], shares: Mapping[str, Share], limit: int
) -> list[tuple[str, float]]:
    """Which jobs a lease from several queues takes, given the ranks of their jobs in line."""
    standing = [
        (shares[queue].stands(number), rank, queue)
        for queue, ranks in line.items()
        for number, rank in enumerate(sorted(ranks)[: shares[queue].limit])
    ]
    return [(queue, rank) for _, rank, queue in sorted(standing)[:limit]]


@dataclass(slots=True)
class Model:
    """Fences are the store's choice, so the model learns them; it only insists that they grow."""

    now: float = 0.0
    paused: str | None = None
    halted: str | None = None
    rows: dict[str, Row] = field(default_factory=dict)
    slots: dict[str, float] = field(default_factory=dict)
    spacing: dict[str | None, tuple[str, float]] = field(default_factory=dict)

    def space(self, job: NewJob) -> tuple[str, bool]:
        """Enqueue a debounced or throttled job: the id of the job that stands for its key, and whether it is new."""
        standing, until = self.spacing.get(job.key, ("", 0.0))
        if self.now < until and job.throttle is not None:
            return standing, False
        row = self.rows.get(standing)
        waits = row is not None and row.status is Status.PENDING and row.fence == 0
        if row is not None and waits and self.now < until:
            row.new, row.run_at = job, self.now + job.delay
        else:
            standing = job.id
            self.enqueue(job)
        self.spacing[job.key] = standing, self.now + job.interval
        return standing, standing == job.id

    def enqueue(self, job: NewJob) -> bool:
        row = self.rows.get(job.id)
        if row is None:
            self.rows[job.id] = Row(job, self.now + job.delay, expires_at=self._expiry(job))
            return True
        if not job.again or not self._finished(row):
            return False
        row.new, row.run_at, row.status, row.attempts, row.crashes = (
            job,
            self.now + job.delay,
            Status.PENDING,
            0,
            0,
        )
        row.expires_at = self._expiry(job)
        return True

    def _expiry(self, job: NewJob) -> float:
        return math.inf if job.expires is None else self.now + cast(float, job.expires)

    def late(self, row: Row) -> bool:
        """Whether it waits and was not started in time."""
        return row.status is Status.PENDING and row.attempts == 0 and row.expires_at <= self.now

    def tick(self, schedule: str, slot: float, jobs: Sequence[NewJob]) -> bool:
        if schedule in self.slots and slot <= self.slots[schedule]:
            return False
        self.slots[schedule] = slot
        for job in jobs:
            self.enqueue(job)
        return True

    def due(self) -> list[Row]:
        if self.paused is not None or self.halted is not None:
            return []
        return [
            row
            for row in self.rows.values()
            if row.status is Status.PENDING and row.run_at <= self.now and not self.late(row)
        ]

    def running(self) -> Counter[str | None]:
        """How many jobs of each lane are being processed."""
        return Counter(row.new.lane for row in self.rows.values() if row.status is Status.PROCESSING)

    def room(self, share: Share) -> Counter[str | None]:
        """How many more jobs of each lane may be leased, as far as their lanes are concerned."""
        room = Counter(row.new.lane for row in self.due())
        if share.per_lane is not None:
            running = self.running()
            for lane in room.keys() - {None}:
                room[lane] = max(0, min(room[lane], share.per_lane - running[lane]))
        return +room

    def leasable(self, share: Share) -> range:
        """How many jobs a lease may bring. Among equals it is the store's choice which of them limits leave out."""
        free = share.limit if share.at_a_time is None else share.at_a_time - self.running().total()
        most = max(0, min(share.limit, free, self.room(share).total()))
        if not share.only_new:
            return range(most, most + 1)
        new = sum(self.new(row) for row in self.due())
        reach = self.room(share).total()
        if share.per_lane is not None:
            reach = min(reach, share.limit)
        if share.at_a_time is not None:
            reach = min(reach, max(0, free))
        least = max(0, reach - (len(self.due()) - new))
        return range(min(share.limit, least), min(most, new) + 1)

    @staticmethod
    def new(row: Row) -> bool:
        """Whether nobody had it before, or its last owner still has it."""
        return row.settled is None

    def lease(self, lease: Lease, owner: str, seconds: float) -> None:
        row = self.rows[lease.id]
        assert row in self.due(), "a job was leased that is not due"
        row.attempts += 1
        row.status = Status.PROCESSING
        self._grant(row, lease, owner, seconds)

    def beat(self, lease: Lease, seconds: float) -> Verdict:
        row = self.rows.get(lease.id)
        if row is not None and self._holds(row, lease):
            row.lease_until = self.now + seconds
            return Verdict.HELD
        cancelled = row is not None and row.settled is not None and row.settled[1] is Ending.CANCELLED
        return Verdict.CANCELLED if cancelled else Verdict.LOST

    def settle(self, outcome: Outcome) -> Settled:
        row = self.rows.get(outcome.lease.id)
        if row is None:
            return Settled.LOST
        if not self._holds(row, outcome.lease):
            same = row.settled == (outcome.lease.fence, outcome.ending)
            return Settled.REPEATED if same else Settled.LOST
        row.status = outcome.status
        row.attempts = max(0, row.attempts - outcome.refund)
        row.crashes += outcome.crashed and row.attempts > 0
        if outcome.delay:
            row.run_at = self.now + outcome.delay
        row.settled = (row.fence, outcome.ending)
        row.owner = None
        self.paused = outcome.pause or self.paused
        self.halted = outcome.halt or self.halted
        return Settled.APPLIED

    def resume(self) -> bool:
        stopped = self.paused is not None or self.halted is not None
        self.paused = self.halted = None
        return stopped

    def lapsed(self) -> set[str]:
        return {
            id_
            for id_, row in self.rows.items()
            if (row.status is Status.PROCESSING and row.lease_until < self.now) or self.late(row)
        }

    def reclaim(self, lease: Lease, owner: str, seconds: float) -> None:
        assert lease.id in self.lapsed(), "a live lease was taken over"
        self.rows[lease.id].status = Status.PROCESSING
        self._grant(self.rows[lease.id], lease, owner, seconds)

    def cancel(self, id_: str) -> bool:
        row = self.rows[id_]
        if self._finished(row):
            return False
        row.status, row.owner, row.settled = Status.FAILED, None, (-1, Ending.CANCELLED)
        return True

    def requeue(self, id_: str) -> bool:
        row = self.rows[id_]
        if not self._finished(row):
            return False
        row.status, row.run_at, row.attempts, row.crashes = Status.PENDING, self.now, 0, 0
        row.expires_at = math.inf
        return True

    def delete(self, id_: str) -> bool:
        if not self._finished(self.rows[id_]):
            return False
        del self.rows[id_]
        return True

    def _grant(self, row: Row, lease: Lease, owner: str, seconds: float) -> None:
        assert lease.fence > row.fence, "a fence did not grow"
        row.fence, row.owner, row.lease_until = lease.fence, owner, self.now + seconds

    @staticmethod
    def _holds(row: Row, lease: Lease) -> bool:
        return row.status is Status.PROCESSING and row.fence == lease.fence

    @staticmethod
    def _finished(row: Row) -> bool:
        return row.status in (Status.COMPLETED, Status.FAILED)
