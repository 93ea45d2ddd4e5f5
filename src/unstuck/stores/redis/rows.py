"""Converts between job hashes and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from unstuck.protocol.job import Category, Ending, Failure, FollowUp, Job, NewJob, Ref, Status
from unstuck.protocol.leases import Beat, Recovery
from unstuck.protocol.operators import Counts, Event, Filter
from unstuck.protocol.outcome import Outcome
from unstuck.stores.redis import bullmq_options
from unstuck.stores.shared.counting import reasons
from unstuck.stores.shared.values import at, instant, json_text, milliseconds

TABLE = "bull"
STALLS = 2  # a job of BullMQ's fails at its second stall: its maxStalledCount is 1
LARGEST = 2**53  # scripts cannot represent larger numbers exactly

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_failure = msgspec.json.Decoder(Failure).decode
_follow_up = msgspec.json.Decoder(FollowUp).decode
_policies = msgspec.json.Decoder(tuple[int, tuple[float, ...], tuple[float, ...]]).decode

Row = Sequence[Any]
# What the values of a damaged hash raise. AttributeError and KeyError are not among them: they are bugs of ours, which
# must not set good jobs aside.
UNREADABLE_BY = (ValueError, TypeError, OverflowError, RecursionError)


def new_job(job: NewJob, position: int) -> list[Any]:
    """What add.lua reads of a job."""
    raw = type(job.payload) is msgspec.Raw
    fields: list[Any] = [
        "name",
        job.task,
        "data",
        str(job.payload, "utf-8") if raw else _encode(job.payload).decode(),
    ]
    fields += [
        "opts",
        bullmq_options.text(job),
        "policy",
        _policy(job.max_attempts, job.backoff, job.lapse_backoff),
    ]
    for name, value in (
        ("key", job.key), ("digest", job.digest), ("lane", job.lane), ("follows", job.parent), ("trace", job.trace),
        ("webhook", job.webhook), ("timeout", job.timeout), ("max_crashes", job.max_crashes),
        ("on_failure", json_text(job.on_failure)),
    ):  # fmt: skip
        if value is not None:
            fields += [name, str(value)]
    run_at = None if job.run_at is None else instant(job.run_at)
    delay = milliseconds(job.delay)
    priority = bullmq_options.their_priority(job.priority)
    facts = [position, job.id, priority, delay, run_at, job.digest, job.again, job.lane, fields, job.task]
    if job.key is not None and job.interval:  # most have no key, and that is quicker to see
        fields += ["deid", str(job.key)]
        facts.append([job.key, milliseconds(job.interval), job.debounce is not None])
    if job.expires is None:
        return facts
    facts += [None] * (11 - len(facts))
    return [*facts, *_expiry(job.expires)]


def _expiry(expires: float | datetime) -> tuple[int | None, int | None]:
    """When a job expires: an instant, or milliseconds from now."""
    return (instant(expires), None) if isinstance(expires, datetime) else (None, milliseconds(expires))


@lru_cache(1000)  # few policies, many jobs
def _policy(*facts: int | tuple[float, ...]) -> str:
    return _encode(facts).decode()


def job(queue: str, row: Row) -> Job:
    """A row of a script's answer; raises one of ``UNREADABLE_BY`` if it cannot be read."""
    _, id_, status, _ = row
    facts = hashed(row)
    if (task := facts.get(b"name")) is None:
        raise ValueError("the name of its task is missing")
    state = _STATES[status]
    more: dict[str, Any] = {}
    if state is Status.PROCESSING:
        more["owner"] = None if (owner := facts.get(b"pb")) is None else _text(owner)
        if (ends := facts.get(b"lease_until")) is not None:
            more["lease_until"] = at(ends)
            more["heartbeat_at"] = at(
                max(facts.get(b"heartbeat_at", b""), facts.get(b"processedOn", b"")) or 0
            )
        elif (ends := facts.get(b"locked_until")) is not None:
            more["lease_until"] = at(ends)  # the time of its holder's last heartbeat is not recorded
    for field in facts.keys() & _OPTIONAL.keys():  # most jobs have few of these
        name, read = _OPTIONAL[field]
        more[name] = read(facts[field])
    if b"settled" in facts and b"elsewhere" not in facts:  # otherwise it is about an earlier end
        word, _, fence = facts[b"settled"].partition(b" ")
        more["settled"], more["settled_fence"] = Ending(_text(word)), _whole(fence)
    if b"error" in facts or b"elsewhere" in facts:
        more["error"] = _error(facts)
    created = facts.get(b"timestamp", b"0")
    run_at = facts.get(b"run_at") or float(created) + float(facts.get(b"delay", 0))
    # A reaper that took a job which was not started in time has not started it either.
    started = state is Status.PROCESSING and b"expired" not in facts.get(b"leased", b"")
    stalls = 0
    if (policy := facts.get(b"policy")) is None:  # another system enqueued it, which counts stalls separately
        stalls = _whole(facts.get(b"stc", 0))
        more = {"max_crashes": STALLS, **more, "crashes": stalls, "foreign": True}
        more |= bullmq_options.budget(facts.get(b"opts", b"{}"))
    else:
        more |= _budget(policy)
    return Job(
        queue=queue,
        id=id_.decode(),
        task=_text(task),
        status=state,
        payload=_decode(facts.get(b"data", b"null")),
        priority=_priority(facts.get(b"priority", b"0")),
        created_at=at(created),
        run_at=at(run_at),
        attempts=_whole(facts.get(b"atm", 0)) + stalls + started,
        fence=_whole(facts.get(b"fence", 0)),
        **more,
    )


def hashed(row: Row) -> dict[bytes, Any]:
    """The facts of a row by their names; if a name occurs twice, the last value counts."""
    return dict(zip(row[3][::2], row[3][1::2], strict=True))


def shown(queue: str, row: Row) -> Job | Ref:
    """As ``job``, but a job that cannot be read keeps its readable fields; data that is not JSON is shown as text.

    If the job is gone, its Ref.
    """
    if not row[3]:
        return Ref(queue, _text(row[1]))
    try:
        return job(queue, row)
    except UNREADABLE_BY:
        return _what_can_be_read(queue, row)


def _what_can_be_read(queue: str, row: Row) -> Job:
    """Try field by field, and keep each one with which the job can be read."""
    facts = hashed(row)
    kept = [b"name", facts.pop(b"name", b"")]
    if b"data" in facts:
        kept += [b"data", _encode(_text(facts[b"data"]))]
    best = job(queue, (*row[:3], kept))
    for fact in facts.items():
        try:
            best = job(queue, (*row[:3], [*kept, *fact]))
        except UNREADABLE_BY:
            continue
        kept += fact
    return best


@lru_cache(1000)
def _budget(policy: bytes) -> dict[str, Any]:
    attempts, backoff, lapse_backoff = _policies(policy)
    return {"max_attempts": attempts, "backoff": backoff, "lapse_backoff": lapse_backoff}


def _error(facts: Mapping[bytes, Any]) -> Failure | None:
    if b"elsewhere" in facts:
        return Failure(
            category=Category(_text(facts[b"error_category"])),
            code=_text(facts[b"error_code"]),
            message=_text(facts[b"failedReason"]),
            stack=_last_stack(facts.get(b"stacktrace")),
            attempt=_whole(facts.get(b"atm", 0)),
            at=None if b"finishedOn" not in facts else at(facts[b"finishedOn"]),
        )
    if b"error" not in facts:
        return None
    return msgspec.structs.replace(_failure(facts[b"error"]), at=at(facts.get(b"error_at", 0)))


def _last_stack(text: bytes | None) -> str:
    try:
        stacks = _decode(text or b"[]")
    except msgspec.DecodeError:
        return ""
    return str(stacks[-1]) if isinstance(stacks, list) and stacks else ""


def beat(beat: Beat, position: int) -> list[Any]:
    _, id_, fence = beat.lease
    return [position, id_, fence, milliseconds(beat.seconds), json_text(beat.progress), beat.stage]


def recovery(asked: Recovery) -> dict[str, Any]:
    return {
        "owner": asked.owner,
        "lease": milliseconds(asked.seconds),
        "limit": asked.limit,
        "of": None if asked.of is None else list(asked.of),
        "blind": [[milliseconds(span.since), milliseconds(span.until)] for span in asked.blind],
        "as_of": None if asked.as_of is None else instant(asked.as_of),
        "grace": milliseconds(asked.grace),
    }


def outcome(outcome: Outcome, position: int) -> list[Any]:
    """What settle.lua reads of an outcome."""
    _, id_, fence = outcome.lease
    facts = [
        position,
        id_,
        fence,
        str(outcome.ending),
        milliseconds(outcome.delay),
        json_text(outcome.result),
    ]
    facts += [outcome.crashed, outcome.pause or None, outcome.halt or None]
    if (failure := outcome.failure) is None:
        return facts
    stack = failure.stack or failure.message
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
    number, when, rest = text.split(b" ", 2)
    type_, job_id, details = _decode(
        _text(rest)
    )  # text of other programs may not be UTF-8, or cut within a character
    data = {"type": type_, "table": TABLE, "details": details}
    return Event(cursor=number.decode(), at=at(when), type=type_, queue=queue, job=job_id, data=data)


def kept(text: bytes) -> tuple[int, str, datetime]:
    """Version, value and time of a record."""
    version, when, value = text.decode().split(" ", 2)
    return int(version), value, at(float(when))


def counts(queue: str, row: Row) -> Counts | None:
    """A queue's counts; None if there is nothing to report."""
    *numbers, waited, pause, halt, totals, ahead = row
    names = ("pending", "delayed", "processing", "expired", "completed", "failed", "cancelled")
    paused, halted = reasons(*(None if why is None else _text(why) for why in (pause, halt)))
    pairs = zip(totals[::2], totals[1::2], strict=True)
    found = Counts(
        queue=queue,
        **dict(zip(names, numbers, strict=True)),
        waited=None if waited is None else int(waited) / 1000,
        paused=paused,
        halted=halted,
        totals={name.decode(): int(value) for name, value in pairs},
        ahead=ahead,
    )
    return found if any(numbers) or found.totals or found.stopped else None


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


@lru_cache(100)
def _priority(theirs: bytes) -> int:
    return bullmq_options.our_priority(int(theirs))


def _whole(number: Any) -> int:
    if not -LARGEST < (whole := int(number)) < LARGEST:
        raise ValueError(f"a number of {len(str(whole))} digits is too large")
    return whole


def _seconds(text: bytes) -> float:
    if not math.isfinite(seconds := float(text)):
        raise ValueError(f"{seconds} is not a time")
    return seconds


_STATES = {status.value.encode(): status for status in Status}
# A field of the hash: the attribute of Job, and how to read it.
_OPTIONAL: dict[bytes, tuple[str, Callable[[bytes], Any]]] = {
    b"key": ("key", _text),
    b"digest": ("digest", _text),
    b"lane": ("lane", _text),
    b"follows": ("parent", _text),
    b"trace": ("trace", _text),
    b"webhook": ("webhook", _text),
    b"timeout": ("timeout", _seconds),
    b"max_crashes": ("max_crashes", _whole),
    b"crashes": ("crashes", _whole),
    b"processedOn": ("started_at", at),
    b"finishedOn": ("finished_at", at),
    b"stage": ("stage", _text),
    b"progress": ("progress", _decode),
    b"returnvalue": ("result", _decode),
    b"expires_at": ("expires_at", at),
    b"on_failure": ("on_failure", _follow_up),
}
