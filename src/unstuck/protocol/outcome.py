"""Outcome: how a lease ends, as a value."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from unstuck.protocol.job import EXPIRED, Ending, Failure, Json, Lease, NewJob, Status


class Settled(StrEnum):
    """What became of an outcome: ``REPEATED`` means this very outcome was applied before.

    Where jobs can be parents, one whose children have not ended or have failed is not completed: it is held as before,
    and has to be settled in another way.
    """

    APPLIED = "applied"
    REPEATED = "repeated"
    LOST = "lost"
    CHILDREN_PENDING = "children_pending"
    CHILDREN_FAILED = "children_failed"


class Outcome(Struct, frozen=True, kw_only=True, gc=False):
    """How a lease ends. ``pause`` and ``halt`` are reasons to pause or halt the job's queue in the same step, if there are any."""

    lease: Lease
    ending: Ending
    event: str
    delay: float = 0.0
    result: Json = None
    failure: Failure | None = None
    crashed: bool = False
    why: str = ""
    pause: str = ""
    halt: str = ""
    then: tuple[NewJob, ...] = ()

    @property
    def status(self) -> Status:
        match self.ending:
            case Ending.COMPLETED:
                return Status.COMPLETED
            case Ending.FAILED | Ending.CANCELLED:
                return Status.FAILED
            case Ending.RETRIED | Ending.RELEASED:
                return Status.PENDING

    @property
    def alert(self) -> str:
        """What an operator must learn of, if anything: it becomes an event of its own in the same step."""
        if self.halt:
            return "halted"
        if self.pause:
            return "paused"
        return "dead_letter" if self.ending is Ending.FAILED else ""

    @property
    def refund(self) -> int:
        return 1 if self.ending is Ending.RELEASED else 0


def completed(lease: Lease, result: Json = None, *, then: tuple[NewJob, ...] = ()) -> Outcome:
    return Outcome(lease=lease, ending=Ending.COMPLETED, event="completed", result=result, then=then)


def retried(
    lease: Lease, failure: Failure, delay: float, *, event: str = "retried", crashed: bool = False
) -> Outcome:
    return Outcome(
        lease=lease, ending=Ending.RETRIED, event=event, failure=failure, delay=delay, crashed=crashed
    )


def failed(
    lease: Lease,
    failure: Failure,
    *,
    event: str = "failed",
    crashed: bool = False,
    halt: str = "",
    then: tuple[NewJob, ...] = (),
) -> Outcome:
    return Outcome(
        lease=lease, ending=Ending.FAILED, event=event, failure=failure, crashed=crashed, halt=halt, then=then
    )


def expired(lease: Lease, failure: Failure, *, then: tuple[NewJob, ...] = ()) -> Outcome:
    """Fail a job that was not started in time. It is no dead letter, and nothing alerts."""
    return Outcome(lease=lease, ending=Ending.CANCELLED, event=EXPIRED, failure=failure, then=then)


def released(lease: Lease, delay: float = 0.0, *, why: str = "", pause: str = "") -> Outcome:
    """Hand the job back unharmed: the attempt is not counted."""
    return Outcome(lease=lease, ending=Ending.RELEASED, event="released", delay=delay, why=why, pause=pause)
