"""What operators do and see, each as one step inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from unstuck.model import Event, Filter, Job, Ref, Worker
from unstuck.store import Counts, Page
from unstuck.stores.counting import by_kind, counts
from unstuck.stores.listing import behind, by_finish, readable
from unstuck.stores.sqlite import rows
from unstuck.stores.sqlite.filters import matching, order
from unstuck.stores.sqlite.steps import UNREADABLE_BY, tell, tell_queue
from unstuck.stores.sqlite.writer import Row, Transaction
from unstuck.stores.telling import CANCELLED, COUNTED_PLACES, edited
from unstuck.stores.values import at, instant, json_text, worker
from unstuck.tokens import Bucket


def find(tx: Transaction, sql: str, which: Filter, limit: int, cursor: str | None) -> Page:
    condition, params = matching(which, tx.now)
    by, beyond, place = order(which, cursor)
    asked = params | place | {"limit": limit}
    terms = {"matching": f"{condition} AND {beyond}", "order": by}
    try:
        found = tx.text(sql.format(job=rows.JOB, **terms), **asked)
        jobs = [rows.job(text) for *_, text in found]
    except UNREADABLE_BY:
        found = tx.text(sql.format(job="NULL", **terms), **asked)
        jobs = _readable(tx, which, found)
    if len(found) < limit or not found:
        return Page(jobs, None)
    seq, finished_at, *_ = found[-1]
    return Page(jobs, f"{finished_at}.{seq}" if by_finish(which) else str(seq))


def _readable(tx: Transaction, which: Filter, found: Sequence[Row]) -> list[Job]:
    """Those of a listing that can be read, each by itself."""
    jobs, others = [], []
    for seq, _, queue, id_, _ in found:
        try:
            jobs += rows.jobs(tx.value("read", seqs=json_text([seq])))
        except UNREADABLE_BY as error:
            others.append((Ref(queue, id_), str(error)))
    return readable(which, jobs, others)


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
    when = None if run_at is None else instant(run_at)
    named = json_text([(ref.id, ref.queue) for ref in refs])
    found = tx.rows("edit", refs=named, priority=priority, run_at=when, now=tx.now)
    tell(tx, [("edited", Ref(*row), edited(priority, run_at)) for row in found])
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
    return counts(by_kind(tx.rows("count", now=tx.now)), tx.rows("counters"), tx.rows("queues"))


def workers(tx: Transaction) -> list[Worker]:
    return [worker(facts, at(started), at(seen)) for started, seen, facts in tx.rows("workers")]


def events(tx: Transaction, after: str | None, job: Ref | None, limit: int) -> list[Event]:
    asked = {"after": behind(after), "limit": limit}
    if job is None:
        found = tx.rows("events", **asked)
    else:
        found = tx.rows("job_events", id=job.id, queue=job.queue, **asked)
    return [rows.event(row) for row in found]
