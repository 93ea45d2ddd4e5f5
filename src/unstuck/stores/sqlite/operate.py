"""What operators do and see, each as one step inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from unstuck.model import Event, Filter, Ref, Worker
from unstuck.store import Bucket, Counts, Page
from unstuck.stores.listing import by_finish
from unstuck.stores.sqlite import rows
from unstuck.stores.sqlite.filters import matching, order
from unstuck.stores.sqlite.steps import tell, tell_queue
from unstuck.stores.sqlite.writer import Transaction
from unstuck.stores.telling import CANCELLED, COUNTED_PLACES


def find(tx: Transaction, sql: str, which: Filter, limit: int, cursor: str | None) -> Page:
    condition, params = matching(which, tx.now)
    by, behind, place = order(which, cursor)
    text = sql.format(job=rows.JOB, matching=f"{condition} AND {behind}", order=by)
    found = tx.text(text, **params, **place, limit=limit)
    jobs = [rows.job(text) for _, text in found]
    if len(found) < limit or not found:
        return Page(jobs, None)
    last = str(found[-1][0])
    finished_at = jobs[-1].finished_at
    if by_finish(which) and finished_at is not None:
        last = f"{rows.instant(finished_at)}.{last}"
    return Page(jobs, last)


def requeue(tx: Transaction, sql: str, which: Filter, limit: int) -> int:
    condition, params = matching(which, tx.now)
    found = tx.text(sql.format(matching=condition), **params, now=tx.now, limit=limit)
    tell(tx, [("requeued", Ref(*row), {}) for row in found])
    return len(found)


def delete(tx: Transaction, sql: str, which: Filter, limit: int) -> int:
    condition, params = matching(which, tx.now)
    found = tx.text(sql.format(matching=condition), **params, limit=limit)
    for queue, id_ in found:
        tx.change("delete_events", {"id": id_, "queue": queue})
    return len(found)


def cancel(tx: Transaction, refs: Sequence[Ref]) -> int:
    error = rows.error_text(CANCELLED, tx.now)
    ended = [
        ref
        for ref in refs
        if tx.change("cancel", {"id": ref.id, "queue": ref.queue, "now": tx.now, "error": error})
    ]
    tell(tx, [("cancelled", ref, {}) for ref in ended])
    tx.many("tally", [(ref.queue, "cancelled", 1) for ref in ended])
    return len(ended)


def edit(tx: Transaction, refs: Sequence[Ref], priority: int | None, run_at: datetime | None) -> int:
    when = None if run_at is None else rows.instant(run_at)
    named = rows.json_text([(ref.id, ref.queue) for ref in refs])
    found = tx.rows("edit", refs=named, priority=priority, run_at=when, now=tx.now)
    changed = {"priority": priority, "run_at": run_at}
    tell(tx, [("edited", Ref(*row), {k: v for k, v in changed.items() if v is not None}) for row in found])
    return len(found)


def place(tx: Transaction, ref: Ref) -> int:
    return int(tx.value("place", id=ref.id, queue=ref.queue, bound=COUNTED_PLACES))


def bucket(tx: Transaction, name: str) -> Bucket:
    tokens = [free_at - tx.now for (free_at,) in tx.rows("bucket", bucket=name, now=tx.now)]
    closed = tx.rows("closed", bucket=name, now=tx.now)
    return Bucket(
        out=len(tokens),
        first_back=min(tokens, default=0) / 1000,
        closed_for=(closed[0][0] - tx.now) / 1000 if closed else 0.0,
    )


def resume(tx: Transaction, queue: str) -> bool:
    lifted = tx.change("resume", {"queue": queue}) > 0
    if lifted:
        tell_queue(tx, "resumed", queue, {})
    return lifted


def count(tx: Transaction) -> list[Counts]:
    kinds: dict[str, dict[str, Any]] = {}
    for queue, kind, number in tx.rows("count", now=tx.now):
        of_queue = kinds.setdefault(queue, {})
        of_queue[kind] = number / 1000 if kind == "waited" else of_queue.get(kind, 0) + number
    totals: dict[str, dict[str, int]] = {}
    for queue, name, value in tx.rows("counters"):
        totals.setdefault(queue, {})[name] = value
    paused: dict[str, str] = dict(tx.rows("queues"))
    return [
        Counts(queue=queue, **kinds.get(queue, {}), paused=paused.get(queue), totals=totals.get(queue, {}))
        for queue in sorted(kinds.keys() | totals.keys() | paused.keys())
    ]


def workers(tx: Transaction) -> list[Worker]:
    return [rows.worker(row) for row in tx.rows("workers")]


def events(tx: Transaction, after: str | None, job: Ref | None, limit: int) -> list[Event]:
    behind = int(after) if after is not None and after.isdecimal() else 0
    if job is None:
        found = tx.rows("events", after=behind, limit=limit)
    else:
        found = tx.rows("job_events", id=job.id, queue=job.queue, after=behind, limit=limit)
    return [rows.event(row) for row in found]
