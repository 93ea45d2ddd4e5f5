"""The answer to a lease: columns instead of rows, because the server would name and look up every value of every row.

Values that are the same for all jobs of a call are not sent; values that few jobs have are in an object of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from unstuck.protocol.job import Ending, Failure, FollowUp, Job, Json, Status
from unstuck.protocol.leases import Share
from unstuck.stores.postgres.rows import COLUMNS, UNREADABLE_BY, Read, json_text, read


class _Few(msgspec.Struct, gc=False):
    """Values that most jobs do not have."""

    key: str | None = None
    digest: str | None = None
    max_crashes: int | None = None
    settled_fence: int | None = None
    settled: Ending | None = None
    result: Json = None
    error: Failure | None = None
    timeout: float | None = None
    lane: str | None = None
    parent: str | None = None
    trace: str | None = None
    webhook: str | None = None
    expires_at: datetime | None = None
    on_failure: FollowUp | None = None


class _Leased(msgspec.Struct, gc=False):
    """All jobs of one answer, in their order in line."""

    now: datetime
    queue: list[str]
    id: list[str]
    task: list[str]
    payload: list[Json]
    priority: list[int]
    created_at: list[datetime]
    run_at: list[datetime | None]  # None: when it was created
    attempts: list[int]
    max_attempts: list[int]
    crashes: list[int]
    fence: list[int]
    backoff: list[tuple[float, ...]]
    lapse_backoff: list[tuple[float, ...]]
    few: list[_Few | None]


_EACH = _Leased.__struct_fields__[1:]
_few = [f"jobs.{COLUMNS[name]}" for name in _Few.__struct_fields__]
_pairs = [f"'{name}', {column}" for name, column in zip(_Few.__struct_fields__, _few, strict=True)]
_values = {name: f"jobs.{COLUMNS[name]}" for name in _EACH if name != "few"} | {
    "run_at": f"nullif(jobs.{COLUMNS['run_at']}, jobs.created_at)",
    "few": f"CASE WHEN num_nonnulls({', '.join(_few)}) > 0 THEN json_build_object({', '.join(_pairs)}) END",
}
# What the UPDATE of a lease returns, and the lists that are built from it in order.
ROW = ", ".join(f"{value} AS {name}" for name, value in _values.items())
LISTS = ", ".join(f"'{name}', json_agg({name})" for name in _EACH)

_leased = msgspec.json.Decoder(_Leased).decode
_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_raw_few = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


def jobs(text: str | None, queues: Mapping[str, Share], owner: str) -> Read:
    """The jobs of an answer. One that cannot be read, because somebody edited it, does not hide the others."""
    if text is None:
        return Read([], [])
    try:
        some = _leased(text)
    except UNREADABLE_BY:
        return _one_by_one(text, queues, owner)
    now = some.now
    until = {queue: now + timedelta(seconds=share.seconds) for queue, share in queues.items()}
    found = [
        Job(
            queue=queue,
            id=id_,
            task=task,
            status=Status.PROCESSING,
            payload=payload,
            priority=priority,
            created_at=created_at,
            run_at=run_at or created_at,
            started_at=now,
            attempts=attempts,
            max_attempts=max_attempts,
            crashes=crashes,
            fence=fence,
            owner=owner,
            lease_until=until[queue],
            heartbeat_at=now,
            backoff=backoff,
            lapse_backoff=lapse_backoff,
        )
        for (
            queue, id_, task, payload, priority, created_at, run_at, attempts, max_attempts, crashes, fence, backoff,
            lapse_backoff,
        ) in zip(
            some.queue, some.id, some.task, some.payload, some.priority, some.created_at, some.run_at, some.attempts,
            some.max_attempts, some.crashes, some.fence, some.backoff, some.lapse_backoff, strict=True,
        )
    ]  # fmt: skip
    for index, few in enumerate(some.few):
        if few is not None:
            found[index] = msgspec.structs.replace(found[index], **msgspec.structs.asdict(few))
    return Read(found, [])


def _one_by_one(text: str, queues: Mapping[str, Share], owner: str) -> Read:
    columns = _raw(text)
    now = msgspec.json.decode(columns["now"], type=datetime)
    rows: list[dict[str, Any]] = []
    for values in zip(*(_raws(columns[name]) for name in _EACH), strict=True):
        facts: dict[str, Any] = dict(zip(_EACH, values, strict=True))
        few = _raw_few(facts.pop("few")) or {}
        length = queues[msgspec.json.decode(facts["queue"])].seconds
        if bytes(facts["run_at"]) == b"null":
            facts["run_at"] = facts["created_at"]
        times = {"started_at": now, "heartbeat_at": now, "lease_until": now + timedelta(seconds=length)}
        rows.append({"status": Status.PROCESSING, "owner": owner} | facts | few | times)
    return read(json_text(rows))
