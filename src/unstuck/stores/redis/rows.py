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
HIGHEST, STEPS = 9, 10  # a point of ours is ten of BullMQ's, where less is sooner

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_failure = msgspec.json.Decoder(Failure).decode
_worker = msgspec.json.Decoder(Worker).decode
_policies = msgspec.json.Decoder(tuple[int, tuple[float, ...], tuple[float, ...]]).decode

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
    fields += ["opts", _opts(job), "policy", _policy(job.max_attempts, job.backoff, job.lapse_backoff)]
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
def _policy(*facts: int | tuple[float, ...]) -> str:
    return _encode(facts).decode()


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
    _, id_, status, _ = row
    facts = hashed(row)
    state = _STATES[status]
    more: dict[str, Any] = {}
    if state is Status.PROCESSING:
        more["owner"] = None if (owner := facts.get(b"pb")) is None else _text(owner)
        if (ends := facts.get(b"lease_until")) is not None:
            more["lease_until"] = at(ends)
            more["heartbeat_at"] = at(
                max(facts.get(b"heartbeat_at", b""), facts.get(b"processedOn", b"")) or 0
            )
    for field in facts.keys() & _OPTIONAL.keys():  # most jobs have few of these
        name, read = _OPTIONAL[field]
        more[name] = read(facts[field])
    if b"settled" in facts:
        word, _, fence = facts[b"settled"].partition(b" ")
        more["settled"], more["settled_fence"] = _WORDS[word], int(fence)
    if b"error" in facts or b"failedReason" in facts:
        more["error"] = _error(facts, failed=state is Status.FAILED)
    created = facts.get(b"timestamp", b"0")
    run_at = facts.get(b"run_at") or int(created) + int(facts.get(b"delay", 0))
    policy = facts.get(b"policy")
    return Job(
        queue=queue,
        id=id_.decode(),
        task=_text(facts.get(b"name", b"")),
        status=state,
        payload=_decode(facts.get(b"data", b"null")),
        priority=_priority(facts.get(b"priority", b"0")),
        created_at=at(created),
        run_at=at(run_at),
        attempts=int(facts.get(b"atm", 0)) + (state is Status.PROCESSING),
        fence=int(facts.get(b"fence", 0)),
        **more,
        **(_their_budget(facts.get(b"opts", b"{}")) if policy is None else _budget(policy)),
    )


def hashed(row: Row) -> dict[bytes, Any]:
    """The facts of a row by their names; of those that are there twice the last one holds."""
    return dict(zip(row[3][::2], row[3][1::2], strict=True))


def shown(queue: str, row: Row) -> Job:
    """As ``job``, but of one that cannot be read its data is shown as text, and little else."""
    try:
        return job(queue, row)
    except UNREADABLE_BY:
        facts = hashed(row)
        facts[b"data"] = _encode(_text(facts.get(b"data", b"")))
        kept = (b"name", b"data", b"timestamp", b"failedReason")
        readable = [word for name in kept if name in facts for word in (name, facts[name])]
        return job(queue, (*row[:3], readable))


@lru_cache(1000)
def _budget(policy: bytes) -> dict[str, Any]:
    attempts, backoff, lapse_backoff = _policies(policy)
    return {"max_attempts": attempts, "backoff": backoff, "lapse_backoff": lapse_backoff}


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


def _error(facts: Mapping[bytes, Any], *, failed: bool) -> Failure | None:
    ours = None if b"error" not in facts else _failure(facts[b"error"])
    reason = None if b"failedReason" not in facts else _text(facts[b"failedReason"])
    if failed and reason is not None and (ours is None or ours.message != reason):  # it failed elsewhere
        return Failure(
            category=Category.TRANSIENT,
            code="failed",
            message=reason,
            stack=_last_stack(facts.get(b"stacktrace")),
            attempt=int(facts.get(b"atm", 0)),
            at=None if b"finishedOn" not in facts else at(facts[b"finishedOn"]),
        )
    return None if ours is None else msgspec.structs.replace(ours, at=at(facts.get(b"error_at", 0)))


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
# The hash's field, a job's, and how it is read.
_OPTIONAL: dict[bytes, tuple[str, Callable[[bytes], Any]]] = {
    b"key": ("key", _text),
    b"digest": ("digest", _text),
    b"lane": ("lane", _text),
    b"follows": ("parent", _text),
    b"trace": ("trace", _text),
    b"webhook": ("webhook", _text),
    b"timeout": ("timeout", float),
    b"max_crashes": ("max_crashes", int),
    b"crashes": ("crashes", int),
    b"processedOn": ("started_at", at),
    b"finishedOn": ("finished_at", at),
    b"stage": ("stage", _text),
    b"progress": ("progress", _decode),
    b"returnvalue": ("result", _decode),
}
