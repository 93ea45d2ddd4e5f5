"""Between rows and values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from unstuck.model import Event, Failure, Job, NewJob, Outcome, Status, Word, Worker
from unstuck.stores.sqlite.writer import Row

TABLE = "job"
COLUMNS = ", ".join(Job.__struct_fields__)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_failure = msgspec.json.Decoder(Failure).decode
_worker = msgspec.json.Decoder(Worker).decode
_STATUS = {str(status): status for status in Status}
_steps_seen: dict[str, tuple[float, ...]] = {}


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def instant(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def json_text(value: Any) -> str | None:
    return None if value is None else _encode(value).decode()


def job(row: Row) -> Job:
    """A row of :data:`COLUMNS` as a job."""
    (
        queue, id_, task, status, payload, key, digest, priority, created_at, run_at, started_at, finished_at,
        attempts, max_attempts, crashes, max_crashes, fence, owner, lease_until, heartbeat_at, stage,
        settled_fence, settled, progress, result, error, backoff, lapse_backoff, timeout, parent, trace, webhook,
    ) = row  # fmt: skip
    return Job(
        queue=queue,
        id=id_,
        task=task,
        status=_STATUS[status],
        payload=_decode(payload),
        key=key,
        digest=digest,
        priority=priority,
        created_at=at(created_at),
        run_at=at(run_at),
        started_at=moment(started_at),
        finished_at=moment(finished_at),
        attempts=attempts,
        max_attempts=max_attempts,
        crashes=crashes,
        max_crashes=max_crashes,
        fence=fence,
        owner=owner,
        lease_until=moment(lease_until),
        heartbeat_at=moment(heartbeat_at),
        stage=stage,
        settled_fence=settled_fence,
        settled=None if settled is None else Word(settled),
        progress=None if progress is None else _decode(progress),
        result=None if result is None else _decode(result),
        error=None if error is None else _failure(error),
        backoff=_steps(backoff),
        lapse_backoff=_steps(lapse_backoff),
        timeout=timeout,
        parent=parent,
        trace=trace,
        webhook=webhook,
    )


def new_row(job: NewJob, now: int) -> Row:
    """The parameters of enqueue.sql, in its order."""
    run_at = now if job.run_at is None else instant(job.run_at)
    run_at += milliseconds(job.delay)
    rank = run_at - 60_000 * job.priority if run_at <= now else None
    return (
        job.queue,
        job.id,
        job.task,
        _encode(job.payload).decode(),
        job.key,
        job.digest,
        job.priority,
        now,
        run_at,
        rank,
        job.max_attempts,
        job.max_crashes,
        _encode(job.backoff).decode(),
        _encode(job.lapse_backoff).decode(),
        job.timeout,
        job.parent,
        job.trace,
        job.webhook,
    )


NEW_COLUMNS = (
    "queue", "id", "task", "payload", "key", "digest", "priority", "now", "run_at", "rank", "max_attempts",
    "max_crashes", "backoff", "lapse_backoff", "timeout", "parent", "trace", "webhook",
)  # fmt: skip


def error_text(failure: Failure | None, now: int) -> str | None:
    return None if failure is None else json_text(msgspec.structs.replace(failure, at=at(now)))


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


def event(row: Row) -> Event:
    seq, when, type_, queue, job_id, details = row
    data = {"type": type_, "table": TABLE, "details": _decode(details)}
    return Event(cursor=str(seq), at=at(when), type=type_, queue=queue, job=job_id, data=data)


def worker(row: Row) -> Worker:
    started_at, seen_at, facts = row
    return msgspec.structs.replace(_worker(facts), started_at=moment(started_at), seen_at=moment(seen_at))


def _steps(text: str) -> tuple[float, ...]:
    # Few policies, many jobs: the same text comes again and again.
    if (steps := _steps_seen.get(text)) is None:
        if len(_steps_seen) > 1000:
            _steps_seen.clear()
        steps = _steps_seen[text] = tuple(_decode(text))
    return steps
