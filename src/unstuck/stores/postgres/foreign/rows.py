"""Converts between rows of a foreign table and jobs. The holder's name contains the fence: ``name#fence``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from unstuck.protocol.job import Category, Ending, Failure, Job, Json, Lease, Status
from unstuck.protocol.leases import Beat
from unstuck.protocol.outcome import Outcome
from unstuck.stores.postgres.foreign.layout import Layout
from unstuck.stores.postgres.foreign.table import LONGEST_TEXT, UNKNOWN
from unstuck.stores.postgres.rows import Params, json_text
from unstuck.stores.shared.events import CANCELLED, outcome_details
from unstuck.text.redact import redact

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_ATTEMPTS = 1_000_000


class Found(msgspec.Struct, frozen=True):
    """A row, with the columns that the table has."""

    id: str
    status: str
    attempts: Any = None
    max_attempts: Any = None
    owner: str | None = None
    lease_until: Any = None
    heartbeat_at: Any = None
    run_at: Any = None
    stage: str | None = None
    expected: Any = None
    started_at: Any = None
    created_at: Any = None
    updated_at: Any = None
    code: str = UNKNOWN
    reason: str | None = None
    message: str | None = None
    row: Json = None

    @property
    def fence(self) -> int:
        _, _, fence = (self.owner or "").rpartition("#")
        return int(fence) if fence.isdecimal() and len(fence) < 19 else 0

    @property
    def again(self) -> bool:
        """Whether it has been started before."""
        return _whole(self.attempts, 0) > 1


class Past(NamedTuple):
    """The history of a row: type and time of its last event; how its last attempt ended, if it did, and the number of that
    attempt; how often its worker was lost."""

    type: str = ""
    at: str = ""
    ended: str = ""
    attempt: int = 0
    lost: int = 0

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Past:
        """From a row of history.sql."""
        _, type_, at, ended, attempt, lost = row
        return cls(type_, at, ended or "", int(attempt) if attempt and attempt.isdecimal() else 0, lost)

    def attempts(self, counted: int) -> int:
        """The attempt that a row is in. A worker that took it since it was requeued may not have counted."""
        uncounted = self.ended.endswith(":requeued") and self.attempt == counted
        return max(1, counted + 1 if uncounted else counted)

    def outlived(self, row: Found) -> bool:
        """Whether a row that was given a lease gave a sign of life since: its worker lives, but does not know about leases."""
        given = time(self.at)
        signs = [when for text in (row.heartbeat_at, row.started_at, row.updated_at) if (when := time(text))]
        return self.type == "reaper:adopted" and given is not None and any(when > given for when in signs)


_found = msgspec.json.Decoder(list[Found]).decode


def read(text: str) -> list[Found]:
    return _found(text)


def job(found: Found, layout: Layout, past: Past | None = None) -> Job:
    """What the row does not have, its terms give; ``past`` is the history of a row whose worker was lost."""
    terms = layout.terms
    counted = _whole(found.attempts, 0)
    status = layout.words[found.status]
    failed = status is Status.FAILED
    return Job(
        queue=layout.table,
        id=found.id,
        task=layout.task,
        status=status,
        payload={"row": found.row},
        created_at=time(found.created_at) or EPOCH,
        run_at=time(found.run_at) or time(found.created_at) or EPOCH,
        started_at=time(found.started_at),
        attempts=counted if past is None else past.attempts(counted),
        max_attempts=_whole(found.max_attempts, terms.max_attempts),
        crashes=0 if past is None else past.lost,
        fence=found.fence,
        owner=found.owner.rpartition("#")[0] if found.owner and found.fence else found.owner,
        lease_until=time(found.lease_until),
        heartbeat_at=time(found.heartbeat_at),
        stage=found.stage,
        settled=Ending.CANCELLED if failed and found.code == CANCELLED.code else None,
        error=_failure(found) if failed else None,
        backoff=terms.backoff,
        lapse_backoff=terms.backoff,
    )


def _failure(found: Found) -> Failure:
    """Why a row failed, as far as it has that. It does not have a category, but it is not tried again."""
    reason = redact(found.reason or "", LONGEST_TEXT)
    message = redact(found.message or "", LONGEST_TEXT) or reason or "the row does not say why"
    return Failure(category=Category.PERMANENT, code=found.code, message=message, reason=reason)


def _whole(value: Any, default: int) -> int:
    """A number of a row within bounds; JSON has NaN and infinity as texts, which give the default."""
    if not isinstance(value, int | float):
        return default
    return int(min(MOST_ATTEMPTS, max(0, value)))


def time(text: Any) -> datetime | None:
    """A time that Python can represent: a row may have one far beyond that, or infinity."""
    try:
        return None if not text else datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def endings(outcomes: Sequence[Outcome], layout: Layout, jobs: Sequence[Job] | None = None) -> Params:
    """The parameters of settle.sql. A reaper passes the jobs that it judged, whose rows are locked."""
    return {
        "outcomes": json_text(
            [
                _ending(outcome, layout, None if jobs is None else jobs[index].attempts)
                for index, outcome in enumerate(outcomes)
            ]
        ),
        "locked": jobs is not None,
    }


def _ending(outcome: Outcome, layout: Layout, attempts: int | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "id": outcome.lease.id,
        "fence": str(outcome.lease.fence),
        "status": layout.word(outcome.status),
        "attempts": attempts,
        "refund": outcome.refund,
        "delay": outcome.delay,
    }
    if (failure := outcome.failure) is not None:
        facts |= {"code": failure.code, "reason": failure.reason or failure.message[:500]}
        facts["message"] = failure.message[:2000]
    return facts


def event_records(outcomes: Sequence[Outcome], layout: Layout, at: datetime) -> Iterator[dict[str, Any]]:
    """The events of outcomes that were applied. By ending and fence a repeated settle is recognised."""
    for outcome in outcomes:
        details = outcome_details(outcome) | {"word": outcome.ending}
        if outcome.result is not None:
            details["result"] = outcome.result
        yield event(layout, outcome.lease.id, outcome.event, details, at)
        if outcome.alert:
            alert = {"alert": outcome.alert} | outcome_details(outcome)
            yield event(layout, outcome.lease.id, "alert", alert, at)


def event(layout: Layout, id_: str, type_: str, details: dict[str, Any], at: datetime) -> dict[str, Any]:
    facts = {"job_id": id_} | details | {"at": at.astimezone(UTC).isoformat()}
    return {"job": id_, "type": type_, "data": {"type": type_, "table": layout.table, "details": facts}}


def beats(given: Sequence[Beat]) -> str:
    return json_text(
        [
            {
                "id": beat.lease.id,
                "fence": str(beat.lease.fence),
                "seconds": beat.seconds,
                "stage": beat.stage,
            }
            for beat in given
        ]
    )


def leases(text: str, layout: Layout) -> list[Lease]:
    """Leases from pairs of ids and fences."""
    return [
        Lease(layout.table, id_, int(fence)) for id_, fence in msgspec.json.decode(text) if fence.isdecimal()
    ]
