"""Converts between rows and values. Many values are sent as one JSON text, which is encoded and decoded at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from unstuck.protocol.job import Ending, Job, NewJob, Ref
from unstuck.protocol.leases import Beat
from unstuck.protocol.operators import Event
from unstuck.protocol.outcome import Outcome
from unstuck.stores.shared.events import outcome_events, reaped
from unstuck.stores.shared.values import KEPT

Row = tuple[Any, ...]
Params = dict[str, Any]


class Query(NamedTuple):
    """A statement by its name, or its text, and its parameters."""

    name: str
    params: Params


_NAMES = {
    "run_at": "next_earliest_run_at",
    "attempts": "attempt_count",
    "owner": "locked_by",
    "lease_until": "lease_expires_at",
    "heartbeat_at": "last_heartbeat_at",
}
# The columns of a job by the names that Job has for them.
COLUMNS = {name: _NAMES.get(name, name) for name in KEPT}
JOB = ", ".join(f"jobs.{column} AS {name}" for name, column in COLUMNS.items())

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_jobs = msgspec.json.Decoder(list[Job]).decode
_raw_jobs = msgspec.json.Decoder(list[msgspec.Raw]).decode
names = msgspec.json.Decoder(list[str]).decode
_facts = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
job = msgspec.json.Decoder(Job).decode
SOON = 1.0  # seconds, as in the statements that notify: the longest pause between a worker's looks
UNREADABLE_BY = (msgspec.DecodeError, RecursionError)  # the first also for values of a wrong type


def json_text(value: Any) -> str:
    return _encode(value).decode()


def numbers(text: str | None) -> list[int]:
    """Indices from 0 for numbers that the server counts from 1."""
    return [] if text is None else [number - 1 for number in _decode(text)]


def pairs(text: str | None) -> list[list[Any]]:
    return [] if text is None else _decode(text)


class _Identity(msgspec.Struct):
    queue: str
    id: str
    fence: int


_identity = msgspec.json.Decoder(_Identity).decode


class Read(NamedTuple):
    """Jobs that could be read, and ref, fence and error of each that could not."""

    jobs: list[Job]
    unreadable: list[tuple[Ref, int, str]]


def read(text: str | None) -> Read:
    """Jobs from one JSON text. One that cannot be read, because somebody edited it, does not hide the others."""
    if text is None:
        return Read([], [])
    try:
        return Read(_jobs(text), [])
    except UNREADABLE_BY:
        return each(_raw_jobs(text))


def each(texts: Iterable[str | msgspec.Raw]) -> Read:
    """Jobs from one JSON text for each."""
    found = Read([], [])
    for raw in texts:
        try:
            found.jobs.append(job(raw))
        except UNREADABLE_BY as error:
            named = _identity(raw)
            found.unreadable.append((Ref(named.queue, named.id), named.fence, str(error)))
    return found


def read_with_fences(text: str | None, fences: str | None) -> Read:
    """Jobs as they were before, but with their present fences."""
    if text is None or fences is None:
        return Read([], [])
    now = [json_text(fence) for fence in _decode(fences)]
    found = [
        {**one, "fence": msgspec.Raw(fence.encode())} for one, fence in zip(_facts(text), now, strict=True)
    ]
    return read(json_text(found))


def new_jobs(jobs: Sequence[NewJob]) -> Params:
    """The parameters of enqueue.sql. A column in which no job has a value is empty."""
    kinds: dict[Row, int] = {}
    kind = [kinds.setdefault(_kind(job), len(kinds) + 1) for job in jobs]
    return {
        "kinds": json_text([_expiring(dict(zip(_KIND, facts, strict=True))) for facts in kinds]),
        "kind": json_text(kind),
        "id": json_text([job.id for job in jobs]),
        "payload": json_text([job.payload for job in jobs]),
        "key": _column([job.key for job in jobs]),
        "digest": _column([job.digest for job in jobs]),
        "delay": _column([job.delay or None for job in jobs]),
        "run_at": _column([job.run_at for job in jobs]),
        "lane": _column([job.lane for job in jobs]),
        "parent": _column([job.parent for job in jobs]),
        "trace": _column([job.trace for job in jobs]),
        "total": len(jobs),
    }


_KIND = (
    "queue", "task", "priority", "max_attempts", "max_crashes", "backoff", "lapse_backoff", "timeout", "webhook",
    "on_failure", "expires",
)  # fmt: skip
_kind = attrgetter(*_KIND)


def over(jobs: Iterable[NewJob]) -> str:
    """Jobs as enqueue_again.sql reads them."""
    return json_text([_expiring(msgspec.structs.asdict(job)) for job in jobs])


def _expiring(facts: Params) -> Params:
    """Facts of a new job, with the seconds after which it expires or, in a column of its own, the instant."""
    if isinstance(facts["expires"], datetime):
        facts |= {"expires": None, "expires_at": facts["expires"]}
    return facts


def _column(values: list[Any]) -> str:
    return json_text(values) if any(value is not None for value in values) else "[]"


def refs(named: Iterable[Ref]) -> Params:
    """Refs as two columns."""
    found = list(named)
    return {"queue": json_text([ref.queue for ref in found]), "id": json_text([ref.id for ref in found])}


def completions(outcomes: Sequence[Outcome], all_events: bool) -> Params:
    """The parameters of complete.sql, for outcomes that are all completed."""
    queues, ids, fences = zip(*[outcome.lease for outcome in outcomes], strict=True)
    return {
        "queue": json_text(queues),
        "id": json_text(ids),
        "fence": json_text(fences),
        "result": _column([outcome.result for outcome in outcomes]),
        "total": len(outcomes),
        "all_events": all_events,
    }


def endings(outcomes: Sequence[Outcome], all_events: bool) -> Params:
    """The parameters of settle.sql."""
    events = [
        {"place": index + 1, "type": type_, "details": details}
        for index, type_, details in outcome_events(outcomes, all_events)
    ]
    return {
        "outcomes": json_text([_ending(outcome) for outcome in outcomes]),
        "events": json_text(events),
        "total": len(outcomes),
    }


def _ending(outcome: Outcome) -> dict[str, Any]:
    queue, id_, fence = outcome.lease
    facts: dict[str, Any] = {
        "queue": queue,
        "id": id_,
        "fence": fence,
        "status": outcome.status,
        "word": outcome.ending,
        "refund": outcome.refund,
        "crashed": int(outcome.crashed),
        "delay": outcome.delay,
        "result": outcome.result,
        "reaped": reaped(outcome),
    }
    if (failure := outcome.failure) is not None:
        facts |= {"error": failure, "code": failure.code, "reason": failure.reason or failure.message[:500]}
    return facts


def going_back(outcomes: Iterable[Outcome]) -> list[str]:
    """The queues of jobs that are due before a worker would look by itself."""
    back = (Ending.RETRIED, Ending.RELEASED)
    return [outcome.lease.queue for outcome in outcomes if outcome.ending in back and outcome.delay < SOON]


def soon(jobs: Iterable[NewJob]) -> Iterator[str]:
    """The queues of new jobs that are due before a worker would look by itself."""
    return (job.queue for job in jobs if job.delay < SOON)


def beats(given: Sequence[Beat]) -> str:
    return json_text(
        [
            {
                "queue": beat.lease.queue,
                "id": beat.lease.id,
                "fence": beat.lease.fence,
                "seconds": beat.seconds,
                "progress": beat.progress,
                "stage": beat.stage,
            }
            for beat in given
        ]
    )


def event(row: Row) -> Event:
    seq, at, type_, queue, job_id, data = row
    return Event(cursor=str(seq), at=at, type=type_, queue=queue, job=job_id, data=_decode(data))
