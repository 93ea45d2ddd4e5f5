"""The contents of events, counters and records, the same in every store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from unstuck.protocol.job import Category, Ending, Failure
from unstuck.protocol.operators import Finding
from unstuck.protocol.outcome import Outcome
from unstuck.text.phrases import command

CANCELLED = Failure(category=Category.PERMANENT, code="cancelled", message="cancelled by request")
UNREADABLE = Failure(
    category=Category.PERMANENT,
    code="unreadable",
    message="the record of this job cannot be read; its event says why",
)
_COUNTED = {
    "reaper:requeued": "reaper.requeues",
    "reaper:failed": "reaper.failures",
    "crash:requeued": "crash.requeues",
    "expired": "expired",
}

PROMOTE_AT_ONCE = 1000  # delayed jobs of a queue that get their rank with one lease
FORGET_AT_ONCE = 1000  # keys whose intervals are over, which are deleted with one recovery
REMEMBER_WORKERS = 3600.0  # seconds for which a silent worker is remembered
COUNTED_PLACES = 10_000
MANY_PIECES = 2000  # rows of counters, before they are added up to one
MOST_BROKEN = 100  # broken rules that one checkup reports


def reaped(outcome: Outcome) -> str | None:
    """The counter for the outcome of a lease that ran out, of one whose holder was seen to die, or of a job that expired."""
    return _COUNTED.get(outcome.event.partition("(")[0])


def outcome_events(
    outcomes: Sequence[Outcome], all_events: bool
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The events of outcomes that were applied: the outcome's index, the event's type and its details.

    The alerts come last, after the events that they are about.
    """
    for index, outcome in enumerate(outcomes):
        if all_events or outcome.ending is not Ending.COMPLETED:
            yield index, outcome.event, outcome_details(outcome)
    for index, outcome in enumerate(outcomes):
        if outcome.alert:
            yield index, "alert", {"alert": outcome.alert} | outcome_details(outcome)


def broken(rule: str, queue: str, id_: str) -> Finding:
    """The finding of a deep checkup about a job that breaks a rule."""
    what = f"{rule}: job {id_} of queue {queue}"
    return Finding("failure", what, f"look at it: {command('job', id_, queue=queue)}", broken=True)


def edited(priority: int | None, run_at: datetime | None) -> dict[str, Any]:
    """The details of the event about a job that was given another priority or time."""
    changed = {"priority": priority, "run_at": run_at}
    return {name: value for name, value in changed.items() if value is not None}


def outcome_details(outcome: Outcome) -> dict[str, Any]:
    """The details of the event about the end of a lease; the stack stays in the job's record."""
    details: dict[str, Any] = {"fence": outcome.lease.fence}
    if outcome.delay:
        details["delay"] = outcome.delay
    if outcome.why:
        details["why"] = outcome.why
    if (failure := outcome.failure) is not None:
        details |= {"category": failure.category, "code": failure.code, "reason": failure.reason}
        details |= {"message": failure.message[:500], "attempt": failure.attempt, "worker": failure.worker}
        details |= failure.details
    return details
