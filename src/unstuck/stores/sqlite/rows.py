"""Converts between rows and values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from unstuck.protocol.job import Failure, Job, NewJob
from unstuck.protocol.leases import Beat
from unstuck.protocol.operators import Event
from unstuck.protocol.outcome import Outcome
from unstuck.stores.shared.values import KEPT, at, expiry, instant, json_text, milliseconds
from unstuck.stores.sqlite.writer import Row

TABLE = "job"
_TIMES = ("created_at", "run_at", "started_at", "finished_at", "lease_until", "heartbeat_at", "expires_at")
_JSON = ("payload", "progress", "result", "error", "backoff", "lapse_backoff", "on_failure")


def _pair(column: str) -> str:
    if column in _TIMES:
        return f"'{column}', {column} / 1000.0"
    return f"'{column}', json({column})" if column in _JSON else f"'{column}', {column}"


# A job as one JSON object. A worker's event loop competes with the writer thread for the interpreter, so
# what counts is the number of calls into SQLite: a whole batch is read as one value and decoded at once.
# What few jobs have is left out of the others.
_FEW = ("expires_at", "on_failure")
_usual = ", ".join(_pair(column) for column in KEPT if column not in _FEW)
JOB = f"""CASE WHEN coalesce({", ".join(_FEW)}) IS NULL THEN json_object({_usual})
    ELSE json_object({_usual}, {", ".join(map(_pair, _FEW))}) END"""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
# Not strict: seconds since 1970 become times.
job = msgspec.json.Decoder(Job, strict=False).decode
jobs = msgspec.json.Decoder(list[Job], strict=False).decode
line = msgspec.json.Decoder(list[tuple[int, int, int]]).decode
names = msgspec.json.Decoder(list[str]).decode
turns = msgspec.json.Decoder(list[tuple[int, int, int, int]]).decode


def new_row(job: NewJob, now: int) -> Row:
    """The parameters of enqueue.sql, in its order."""
    run_at = now if job.run_at is None else instant(job.run_at)
    if job.delay:
        run_at += milliseconds(job.delay)
    rank = run_at - 60_000 * job.priority if run_at <= now else None
    return (
        job.queue,
        job.id,
        job.task,
        str(job.payload, "utf-8") if type(job.payload) is msgspec.Raw else _encode(job.payload).decode(),
        job.key,
        job.digest,
        job.priority,
        now,
        run_at,
        rank,
        job.max_attempts,
        job.max_crashes,
        _steps(job.backoff),
        _steps(job.lapse_backoff),
        job.timeout,
        job.lane,
        job.parent,
        job.trace,
        job.webhook,
        None if job.expires is None else expiry(job.expires, now),
        None if job.on_failure is None else json_text(job.on_failure),
    )


@lru_cache(1000)  # few policies, many jobs
def _steps(steps: tuple[float, ...]) -> str:
    return _encode(steps).decode()


NEW_COLUMNS = (
    "queue", "id", "task", "payload", "key", "digest", "priority", "now", "run_at", "rank", "max_attempts",
    "max_crashes", "backoff", "lapse_backoff", "timeout", "lane", "parent", "trace", "webhook", "expires_at", "on_failure",
)  # fmt: skip


def beat_facts(beat: Beat) -> dict[str, Any]:
    """What heartbeat.sql reads of a beat."""
    queue, id_, fence = beat.lease
    return {
        "id": id_,
        "queue": queue,
        "fence": fence,
        "lease": milliseconds(beat.seconds),
        "progress": json_text(beat.progress),
        "stage": beat.stage,
    }


def outcome_facts(outcome: Outcome, now: int) -> dict[str, Any]:
    """What settle.sql reads of an outcome."""
    queue, id_, fence = outcome.lease
    return {
        "id": id_,
        "queue": queue,
        "fence": fence,
        "status": outcome.status,
        "word": outcome.ending,
        "refund": outcome.refund,
        "crashed": int(outcome.crashed),
        "delay": milliseconds(outcome.delay),
        "result": json_text(outcome.result),
        "error": error_text(outcome.failure, now),
    }


def error_text(failure: Failure | None, now: int) -> str | None:
    return None if failure is None else json_text(msgspec.structs.replace(failure, at=at(now)))


def event(row: Row) -> Event:
    seq, when, type_, queue, job_id, details = row
    data = {"type": type_, "table": TABLE, "details": _decode(details)}
    return Event(cursor=str(seq), at=at(when), type=type_, queue=queue, job=job_id, data=data)
