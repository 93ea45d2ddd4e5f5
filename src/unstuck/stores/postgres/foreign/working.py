"""A worker's operations on rows of a foreign table: lease, heartbeat, settle. All of them are recorded, so that the events
of a row are its whole history, and a settle whose answer was lost can be recognised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import psycopg

from unstuck.protocol.errors import ConfigError
from unstuck.protocol.job import Ending, Job, Lease, Ref
from unstuck.protocol.leases import ANSWER, Beat, Share, Verdict
from unstuck.protocol.operators import Filter
from unstuck.protocol.outcome import Outcome, Settled
from unstuck.stores.postgres import rows as native
from unstuck.stores.postgres.foreign import rows
from unstuck.stores.postgres.foreign.careful import asking, carefully
from unstuck.stores.postgres.foreign.history import histories
from unstuck.stores.postgres.foreign.looking import find, matching, named
from unstuck.stores.postgres.foreign.reaping import add_events
from unstuck.stores.postgres.foreign.table import Table, needing
from unstuck.stores.postgres.rows import Query, json_text
from unstuck.stores.postgres.steps import Step
from unstuck.stores.shared.events import CANCELLED, reaped
from unstuck.stores.shared.settling import answers, missed

ANY_NUMBER = 2_000_000  # of rows that may run at a time


def lease(table: Table, share: Share, limit: int, owner: str) -> Step[list[Job]]:
    needing(table, "owner")
    queue = table.layout.table
    if share.only_new and share.at_a_time is not None:
        return []  # a new row would take the room of those that were started before
    if (
        share.at_a_time is not None
    ):  # locks the queue, so that nobody else leases from it until we have counted what runs
        yield Query("crowd", {"queues": json_text([queue])})
    facts = {"queue": queue, "owner": owner, "seconds": share.seconds, "most": min(share.limit, limit)}
    facts |= {"bytes": ANSWER, "only_new": share.only_new}
    facts["at_a_time"] = ANY_NUMBER if share.at_a_time is None else share.at_a_time
    [(text,)] = yield Query(table.text("lease"), facts)
    found = rows.read(text)
    past = yield from histories(table, [row for row in found if row.again])
    jobs = [
        msgspec.structs.replace(rows.job(row, table.layout), crashes=past.get(row.id, rows.Past()).lost)
        for row in found
    ]
    if jobs:
        [(now,)] = yield Query("SELECT clock_timestamp()", {})
        events = [
            rows.event(table.layout, job.id, "leased", {"fence": job.fence, "owner": owner, "attempt": job.attempts}, now)
            for job in jobs
        ]  # fmt: skip
        yield from add_events(table, events)
    return jobs


def heartbeat(
    table: Table, owner: str, beats: Sequence[Beat]
) -> Step[tuple[dict[Lease, Verdict], list[Lease]]]:
    """The verdicts, and leases of this owner that the beats do not name."""
    needing(table, "owner")
    facts = {"beats": rows.beats(beats), "owner": owner}
    [(renewed, found, strangers)] = yield Query(table.text("heartbeat"), facts)
    held, still = set(native.numbers(renewed)), set(native.numbers(found))
    verdicts = {
        beat.lease: Verdict.HELD if index in held else Verdict.LOST
        for index, beat in enumerate(beats)
        if index in held or index not in still  # a row that is locked has no verdict yet
    }
    if lost := [lease for lease, verdict in verdicts.items() if verdict is Verdict.LOST]:
        which = Filter(ids=tuple(lease.id for lease in lost), code=CANCELLED.code)
        cancelled = {job.id for job in (yield from find(table, which, len(lost), 0))}
        verdicts |= {lease: Verdict.CANCELLED for lease in lost if lease.id in cancelled}
    return verdicts, rows.leases(strangers, table.layout)


def settle(table: Table, outcomes: Sequence[Outcome]) -> Step[list[Settled]]:
    """End leases of rows, each of which is named once."""
    needing(table, "owner")
    [(applied, now)] = yield Query(table.text("settle"), rows.endings(outcomes, table.layout))
    done = set(native.numbers(applied))
    good = [outcome for index, outcome in enumerate(outcomes) if index in done]
    yield from add_events(table, list(rows.event_records(good, table.layout, now)))
    yield from count(table, good)
    return answers(outcomes, done, (yield from _ended(table, missed(outcomes, done))))


def count(table: Table, outcomes: Sequence[Outcome]) -> Step[None]:
    """Add outcomes to our counters."""
    names: list[str] = []
    for outcome in outcomes:
        names += [outcome.ending, *(["crashed"] if outcome.crashed else [])]
        names += [name] if (name := reaped(outcome)) else []
    yield from _tally(table, names)


def _tally(table: Table, names: Sequence[str]) -> Step[None]:
    if names:
        yield Query("tally", {"queue": table.layout.table, "added": json_text(Counter(names))})


def _ended(table: Table, lost: Sequence[Outcome]) -> Step[dict[Ref, tuple[int, str]]]:
    """The fence and ending with which rows had ended, if it was by one of these leases."""
    if not lost or table.events.why:
        return {}
    fences = {outcome.lease.id: str(outcome.lease.fence) for outcome in lost}
    facts = {"ids": list(fences), "fences": list(fences.values()), "table": table.layout.table}
    answer = yield from carefully(asking(Query(table.text("ended"), facts)))
    if isinstance(answer, psycopg.DatabaseError):
        return {}
    # The statement compares with all of these fences, so it may find a row by that of another one.
    return {
        Ref(table.layout.table, id_): (int(fence), word)
        for id_, fence, word in answer
        if fences.get(id_) == fence
    }


def requeue(table: Table, which: Filter, limit: int) -> Step[int]:
    condition, params = matching(table, which)
    text = table.text("requeue").replace("{matching}", condition)
    return (yield from _change(table, Query(text, params | {"limit": limit}), "requeued", {}))


def cancel(table: Table, ids: Sequence[str]) -> Step[int]:
    query = Query(table.text("cancel"), {"ids": json_text(named(table, ids))})
    done = yield from _change(table, query, "cancelled", {"code": CANCELLED.code})
    yield from _tally(table, [Ending.CANCELLED] * done)
    return done


def edit(table: Table, ids: Sequence[str], priority: int | None, run_at: datetime | None) -> Step[int]:
    layout = table.layout
    if priority is not None:
        raise ConfigError(f"rows of table {layout.table} have no priority: give them another time, --run-at")
    if run_at is None:
        return 0
    if not (table.has("run_at") and table.columns["run_at"].writable("run_at")):
        raise ConfigError(
            f"table {layout.table} has no column {layout.run_at or 'run_at'} for another time: "
            f"run unstuck init --table {layout.table}, or name the column that has it"
        )
    query = Query(table.text("edit"), {"ids": json_text(named(table, ids)), "run_at": run_at})
    return (yield from _change(table, query, "edited", {"run_at": run_at.isoformat()}))


def _change(table: Table, query: Query, type_: str, details: dict[str, Any]) -> Step[int]:
    changed = [id_ for (id_,) in (yield query)]
    if changed:
        [(now,)] = yield Query("SELECT clock_timestamp()", {})
        yield from add_events(table, [rows.event(table.layout, id_, type_, details, now) for id_ in changed])
    return len(changed)
