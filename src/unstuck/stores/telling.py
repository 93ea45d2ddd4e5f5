"""What events, counters and records say of what happened, the same in every store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from unstuck.model import Category, Failure, Outcome, Word

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
}

PROMOTE_AT_ONCE = 1000  # delayed jobs of a queue that get their place in line with one lease
REMEMBER_WORKERS = 3600.0  # seconds for which a silent worker is known
COUNTED_PLACES = 10_000
MANY_PIECES = 2000  # of counters, before they are put together
MOST_BROKEN = 100  # broken rules that are told


def reaped(outcome: Outcome) -> str | None:
    """The counter for what became of a lease that ran out, or of one whose holder was seen to die."""
    return _COUNTED.get(outcome.event.partition("(")[0])


def told(outcomes: Sequence[Outcome], all_events: bool) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The events of outcomes that apply: the outcome's place, the event's type and its details.

    The alerts come last, behind what they are about.
    """
    for place, outcome in enumerate(outcomes):
        if all_events or outcome.word is not Word.COMPLETED:
            yield place, outcome.event, outcome_details(outcome)
    for place, outcome in enumerate(outcomes):
        if outcome.alert:
            yield place, "alert", {"alert": outcome.alert} | outcome_details(outcome)


def broken(rule: str, queue: str, id_: str) -> str:
    """What ``verify`` says of a job that breaks a rule."""
    return f"{rule}: job {id_} of queue {queue}"


def edited(priority: int | None, run_at: datetime | None) -> dict[str, Any]:
    """What an event tells of a job that was given another priority or time."""
    changed = {"priority": priority, "run_at": run_at}
    return {name: value for name, value in changed.items() if value is not None}


def outcome_details(outcome: Outcome) -> dict[str, Any]:
    """What an event tells of how a lease ended; the stack stays in the job's record."""
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
