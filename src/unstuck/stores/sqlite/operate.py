"""The operations of operators, each as one step inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from unstuck.protocol.fleet import Fleet
from unstuck.protocol.job import Job, Ref
from unstuck.protocol.operators import Counts, Event, Filter, Page
from unstuck.protocol.records import Record
from unstuck.stores.shared import keeping
from unstuck.stores.shared.counting import by_kind, counts, with_ahead
from unstuck.stores.shared.events import CANCELLED, COUNTED_PLACES, edited
from unstuck.stores.shared.listing import behind, by_finish, readable
from unstuck.stores.shared.values import at, instant, json_text, worker
from unstuck.stores.sqlite import rows
from unstuck.stores.sqlite.filters import matching, order
from unstuck.stores.sqlite.steps import UNREADABLE_BY, add_events, add_queue_event
from unstuck.stores.sqlite.writer import Row, Transaction


def find(tx: Transaction, sql: str, which: Filter, limit: int, cursor: str | None) -> Page:
    condition, params = matching(which, tx.now)
    by, beyond, cursor_params = order(which, cursor)
    asked = params | cursor_params | {"limit": limit}
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
    """The jobs of a listing that can be read; each is read by itself."""
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
    add_events(tx, [("requeued", Ref(*row), {}) for row in found])
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
    add_events(tx, [("cancelled", ref, {}) for ref in ended])
    tx.many("tally", [(ref.queue, "cancelled", 1) for ref in ended])
    return len(ended)


def edit(tx: Transaction, refs: Sequence[Ref], priority: int | None, run_at: datetime | None) -> int:
    when = None if run_at is None else instant(run_at)
    named = json_text([(ref.id, ref.queue) for ref in refs])
    found = tx.rows("edit", refs=named, priority=priority, run_at=when, now=tx.now)
    add_events(tx, [("edited", Ref(*row), edited(priority, run_at)) for row in found])
    return len(found)


def resume(tx: Transaction, queue: str) -> bool:
    lifted = tx.change("resume", {"queue": queue}) > 0
    if lifted:
        add_queue_event(tx, "resumed", queue, {})
    return lifted


def count(tx: Transaction, ahead_of: Ref | None) -> list[Counts]:
    found = counts(by_kind(tx.rows("count", now=tx.now)), tx.rows("counters"), tx.rows("queues"))
    if ahead_of is None:
        return found
    ahead = tx.value("ahead", id=ahead_of.id, queue=ahead_of.queue, bound=COUNTED_PLACES)
    return with_ahead(found, ahead_of.queue, int(ahead))


def fleet(tx: Transaction) -> Fleet:
    found = tx.rows("fleet")
    return Fleet(
        [worker(facts, at(began), at(seen)) for _, began, seen, facts in found if facts is not None],
        {name: at(slot) for name, _, slot, facts in sorted(found, key=lambda row: row[0]) if facts is None},
    )


def kept(tx: Transaction, kind: str, after: str, limit: int) -> list[Record]:
    found = tx.rows("kept", kind=kind, after=after, limit=limit)
    return [keeping.record(kind, name, version, text, at(when)) for name, version, text, when in found]


def events(tx: Transaction, after: str | None, job: Ref | None, limit: int) -> list[Event]:
    asked = {"after": behind(after), "limit": limit}
    if job is None:
        found = tx.rows("events", **asked)
    else:
        found = tx.rows("job_events", id=job.id, queue=job.queue, **asked)
    return [rows.event(row) for row in found]
