"""Between job hashes and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from unstuck.model import Beat, Category, Event, Failure, Filter, Job, NewJob, Outcome, Status, Word, Worker
from unstuck.store import Counts

TABLE = "bull"
# BullMQ's fields of a job's hash, then ours. A job that was not enqueued by us has none of ours at first.
FIELDS = (
    "name", "data", "opts", "timestamp", "delay", "priority", "processedOn", "finishedOn", "atm", "progress",
    "returnvalue", "failedReason", "stacktrace",
    "run_at", "key", "digest", "lane", "follows", "trace", "webhook", "timeout", "backoff", "lapse_backoff",
    "max_attempts", "max_crashes", "crashes", "fence", "owner", "lease_until", "heartbeat_at", "stage", "settled",
    "settled_fence", "error", "error_at",
    "ats", "leased_ats", "pb", "born", "defa",
)  # fmt: skip
HIGHEST, STEPS = 9, 10  # a point of ours is ten of BullMQ's, where less is sooner

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_failure = msgspec.json.Decoder(Failure).decode
_worker = msgspec.json.Decoder(Worker).decode
_floats = msgspec.json.Decoder(tuple[float, ...]).decode

Row = Sequence[Any]
UNREADABLE_BY = (msgspec.DecodeError, ValueError, TypeError, KeyError)


@lru_cache(1000)  # the jobs of a call have many times in common
def at(ms: float | bytes) -> datetime:
    return datetime.fromtimestamp(float(ms) / 1000, UTC)


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def instant(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def json_text(value: Any) -> str | None:
    return None if value is None else _encode(value).decode()


def their_priority(priority: int) -> int:
    return STEPS * (STEPS - priority)


def our_priority(theirs: int) -> int:
    """One that was not written by us is rounded; none at all is the highest there."""
    return min(HIGHEST, max(0, STEPS - round(theirs / STEPS)))


def new_job(job: NewJob, place: int) -> list[Any]:
    """What add.lua reads of a job."""
    raw = type(job.payload) is msgspec.Raw
    fields: list[Any] = [
        "name",
        job.task,
        "data",
        str(job.payload, "utf-8") if raw else _encode(job.payload).decode(),
    ]
    fields += [*_policy(job.max_attempts, job.backoff, job.lapse_backoff)]
    fields += ["opts", _opts(job)]
    for name, value in (
        ("key", job.key), ("digest", job.digest), ("lane", job.lane), ("follows", job.parent), ("trace", job.trace),
        ("webhook", job.webhook), ("timeout", job.timeout), ("max_crashes", job.max_crashes),
    ):  # fmt: skip
        if value is not None:
            fields += [name, str(value)]
    run_at = None if job.run_at is None else instant(job.run_at)
    delay = milliseconds(job.delay)
    priority = their_priority(job.priority)
    return [place, job.id, priority, delay, run_at, job.digest, job.again, job.lane, fields, job.task]


@lru_cache(1000)  # few policies, many jobs
def _policy(
    max_attempts: int, backoff: tuple[float, ...], lapse_backoff: tuple[float, ...]
) -> tuple[Any, ...]:
    steps = "backoff", json_text(backoff), "lapse_backoff", json_text(lapse_backoff)
    return "max_attempts", max_attempts, *steps


def _opts(job: NewJob) -> str:
    """The options by which a worker of BullMQ's treats the job as we would, as far as it can."""
    start = _opts_start(job.max_attempts, job.backoff, their_priority(job.priority))
    delay = f'"delay":{milliseconds(job.delay)},' if job.delay else ""
    return f'{start}{delay}"jobId":{_encode(job.id).decode()}}}'


@lru_cache(1000)
def _opts_start(attempts: int, backoff: tuple[float, ...], priority: int) -> str:
    opts: dict[str, Any] = {"attempts": attempts, "priority": priority}
    if backoff:
        doubling = len(backoff) > 1 and backoff[1] == 2 * backoff[0]
        kind = "exponential" if doubling else "fixed"
        opts["backoff"] = {"type": kind, "delay": milliseconds(backoff[0])}
    return _encode(opts).decode()[:-1] + ","


def job(queue: str, row: Row) -> Job:
    """A row of a script's answer; raises ``msgspec.DecodeError`` if it cannot be read."""
    _, id_, status, values = row
    facts = dict(zip(FIELDS, values, strict=True))
    state = _STATES[status]
    more: dict[str, Any] = {}
    if state is Status.PROCESSING:
        # A worker that knows no leases of ours leaves what an earlier one wrote.
        ours = facts["ats"] == facts["leased_ats"]
        for name, field, read in _HELD if ours else _HELD_BY_OTHERS:
            if (value := facts[field]) is not None:
                more[name] = read(value)
    for name, field, read in _OPTIONAL:  # most jobs have few of these
        if (value := facts[field]) is not None:
            more[name] = read(value)
    if facts["error"] is not None or facts["failedReason"] is not None:
        more["error"] = _error(facts, failed=state is Status.FAILED)
    created = facts["timestamp"] or b"0"
    run_at = facts["run_at"] or int(created) + int(facts["delay"] or 0)
    return Job(
        queue=queue,
        id=id_.decode(),
        task=_text(facts["name"] or b""),
        status=state,
        payload=_decode(facts["data"] or b"null"),
        priority=_priority(facts["priority"] or b"0"),
        created_at=at(created),
        run_at=at(run_at),
        attempts=int(facts["atm"] or 0) + (state is Status.PROCESSING),
        fence=int(facts["fence"] or 0),
        **more,
        **_budget(facts),
    )


def shown(queue: str, row: Row) -> Job:
    """As ``job``, but of one that cannot be read its data is shown as text, and little else."""
    try:
        return job(queue, row)
    except UNREADABLE_BY:
        place, id_, status, values = row
        facts = dict(zip(FIELDS, values, strict=True))
        facts["data"] = _encode(_text(facts["data"] or b""))
        kept = ("name", "data", "timestamp", "failedReason")
        return job(queue, (place, id_, status, [facts[name] if name in kept else None for name in FIELDS]))


def _budget(facts: Mapping[str, Any]) -> dict[str, Any]:
    if facts["max_attempts"] is not None:
        return {
            "max_attempts": int(facts["max_attempts"]),
            "backoff": _steps(facts["backoff"] or b"[]"),
            "lapse_backoff": _steps(facts["lapse_backoff"] or b"[]"),
        }
    return _their_budget(facts["opts"] or b"{}")


@lru_cache(1000)
def _steps(text: bytes) -> tuple[float, ...]:
    return _floats(text)


@lru_cache(1000)
def _their_budget(text: bytes) -> dict[str, Any]:
    """What the options of a job mean that BullMQ enqueued."""
    opts = _decode(text)
    attempts = max(1, int(opts.get("attempts") or 1))
    backoff = opts.get("backoff") or 0
    kind, delay = (
        (backoff.get("type"), backoff.get("delay") or 0) if isinstance(backoff, dict) else ("", backoff)
    )
    steps = min(attempts, 16) if kind == "exponential" else 1
    return {
        "max_attempts": attempts,
        "backoff": tuple(delay / 1000 * 2**n for n in range(steps)) if delay else (),
    }


def _error(facts: Mapping[str, Any], *, failed: bool) -> Failure | None:
    ours = None if facts["error"] is None else _failure(facts["error"])
    reason = None if facts["failedReason"] is None else _text(facts["failedReason"])
    if failed and reason is not None and (ours is None or ours.message != reason):  # it failed elsewhere
        return Failure(
            category=Category.TRANSIENT,
            code="failed",
            message=reason,
            stack=_last_stack(facts["stacktrace"]),
            attempt=int(facts["atm"] or 0),
            at=None if facts["finishedOn"] is None else at(facts["finishedOn"]),
        )
    return None if ours is None else msgspec.structs.replace(ours, at=at(facts["error_at"] or 0))


def _last_stack(text: bytes | None) -> str:
    try:
        stacks = _decode(text or b"[]")
    except msgspec.DecodeError:
        return ""
    return str(stacks[-1]) if isinstance(stacks, list) and stacks else ""


def beat(beat: Beat, place: int) -> list[Any]:
    _, id_, fence = beat.lease
    return [place, id_, fence, milliseconds(beat.seconds), json_text(beat.progress), beat.stage]


def outcome(outcome: Outcome, place: int) -> list[Any]:
    """What settle.lua reads of an outcome."""
    _, id_, fence = outcome.lease
    facts = [place, id_, fence, str(outcome.word), milliseconds(outcome.delay), json_text(outcome.result)]
    facts += [outcome.crashed, outcome.pause or None]
    if (failure := outcome.failure) is None:
        return facts
    stack = json_text([failure.stack or failure.message])
    return [*facts, json_text(failure), str(failure.category), failure.code, failure.message, stack]


def which(which: Filter) -> dict[str, Any]:
    """What match.lua reads of a filter."""
    facts = {
        name: getattr(which, name) for name in ("ids", "status", "task", "key", "owner", "category", "code")
    }
    before = None if which.older_than is None else milliseconds(which.older_than)
    facts |= {"dead": which.dead or None, "before": before}
    return {name: value for name, value in facts.items() if value is not None}


def event(queue: str, text: bytes) -> Event:
    number, when, told = text.split(b" ", 2)
    type_, job_id, details = _decode(told)
    data = {"type": type_, "table": TABLE, "details": details}
    return Event(cursor=number.decode(), at=at(when), type=type_, queue=queue, job=job_id, data=data)


def worker(facts: bytes, since: bytes | None, seen: float) -> Worker:
    began = at(since) if since is not None else at(seen)
    return msgspec.structs.replace(_worker(facts), started_at=began, seen_at=at(seen))


def counts(queue: str, row: Row) -> Counts | None:
    """A queue in numbers; None for one that has nothing to tell."""
    *numbers, waited, why, totals = row
    names = ("pending", "delayed", "processing", "expired", "completed", "failed", "cancelled")
    pairs = zip(totals[::2], totals[1::2], strict=True)
    found = Counts(
        queue=queue,
        **dict(zip(names, numbers, strict=True)),
        waited=None if waited is None else int(waited) / 1000,
        paused=None if why is None else _text(why),
        totals={name.decode(): int(value) for name, value in pairs},
    )
    return found if any(numbers) or found.totals or found.paused is not None else None


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


@lru_cache(100)
def _priority(theirs: bytes) -> int:
    return our_priority(int(theirs))


_STATES = {status.value.encode(): status for status in Status}
_WORDS = {word.value.encode(): word for word in Word}
_Reading = tuple[tuple[str, str, Callable[[bytes], Any]], ...]  # a job's field, the hash's, how it is read
_HELD: _Reading = (
    ("owner", "owner", _text),
    ("lease_until", "lease_until", at),
    ("heartbeat_at", "heartbeat_at", at),
)
_HELD_BY_OTHERS: _Reading = (("owner", "pb", _text),)
_OPTIONAL: _Reading = (
    ("key", "key", _text),
    ("digest", "digest", _text),
    ("lane", "lane", _text),
    ("parent", "follows", _text),
    ("trace", "trace", _text),
    ("webhook", "webhook", _text),
    ("timeout", "timeout", float),
    ("max_crashes", "max_crashes", int),
    ("crashes", "crashes", int),
    ("started_at", "processedOn", at),
    ("finished_at", "finishedOn", at),
    ("stage", "stage", _text),
    ("settled_fence", "settled_fence", int),
    ("settled", "settled", _WORDS.__getitem__),
    ("progress", "progress", _decode),
    ("result", "returnvalue", _decode),
)
