"""What a worker does with rows of a foreign table: lease, beat, settle. All of it is told, so that the events of a row
are its whole history, and a settle whose answer was lost can be recognised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg

from unstuck.model import Beat, Filter, Job, Lease, Outcome, Settled, Verdict
from unstuck.store import Share
from unstuck.stores.postgres import rows as native
from unstuck.stores.postgres.adopted import rows
from unstuck.stores.postgres.adopted.careful import asking, carefully
from unstuck.stores.postgres.adopted.history import histories
from unstuck.stores.postgres.adopted.looking import find, matching, named
from unstuck.stores.postgres.adopted.reaping import tell
from unstuck.stores.postgres.adopted.table import Table, needing
from unstuck.stores.postgres.rows import Query, json_text
from unstuck.stores.postgres.steps import Step
from unstuck.stores.telling import CANCELLED, reaped

ANY_NUMBER = 2_000_000  # of rows that may run at a time


def lease(table: Table, share: Share, limit: int, owner: str) -> Step[list[Job]]:
    needing(table, "owner")
    queue = table.layout.table
    if share.at_a_time is not None:  # nobody else leases from it until we have counted what runs
        yield Query("crowd", {"queues": json_text([queue])})
    facts = {"queue": queue, "owner": owner, "seconds": share.seconds, "most": min(share.limit, limit)}
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
        told = [
            rows.event(table.layout, job.id, "leased", {"fence": job.fence, "owner": owner, "attempt": job.attempts}, now)
            for job in jobs
        ]  # fmt: skip
        yield from tell(table, told)
    return jobs


def heartbeat(
    table: Table, owner: str, beats: Sequence[Beat]
) -> Step[tuple[dict[Lease, Verdict], list[Lease]]]:
    """The verdicts, and leases under this name that were not mentioned."""
    needing(table, "owner")
    facts = {"beats": rows.beats(beats), "owner": owner}
    [(renewed, found, strangers)] = yield Query(table.text("heartbeat"), facts)
    held, still = set(native.numbers(renewed)), set(native.numbers(found))
    verdicts = {
        beat.lease: Verdict.HELD if place in held else Verdict.LOST
        for place, beat in enumerate(beats)
        if place in held or place not in still  # what is locked has no verdict yet
    }
    if lost := [lease for lease, verdict in verdicts.items() if verdict is Verdict.LOST]:
        which = Filter(ids=tuple(lease.id for lease in lost), code=CANCELLED.code)
        cancelled = {job.id for job in (yield from find(table, which, len(lost), 0))}
        verdicts |= {lease: Verdict.CANCELLED for lease in lost if lease.id in cancelled}
    return verdicts, rows.leases(strangers, table.layout)


def settle(table: Table, outcomes: Sequence[Outcome]) -> Step[list[Settled]]:
    """End leases of rows that are named once each."""
    needing(table, "owner")
    [(applied, now)] = yield Query(table.text("settle"), rows.endings(outcomes, table.layout))
    done = set(native.numbers(applied))
    good = [outcome for place, outcome in enumerate(outcomes) if place in done]
    yield from tell(table, list(rows.told(good, table.layout, now)))
    yield from count(table, good)
    missed = [outcome for place, outcome in enumerate(outcomes) if place not in done]
    ended = yield from _ended(table, missed)
    return [
        Settled.APPLIED
        if place in done
        else Settled.REPEATED
        if ended.get((outcome.lease.id, str(outcome.lease.fence))) == outcome.word
        else Settled.LOST
        for place, outcome in enumerate(outcomes)
    ]


def count(table: Table, outcomes: Sequence[Outcome]) -> Step[None]:
    """Let our counters know."""
    names: list[str] = []
    for outcome in outcomes:
        names += [outcome.word, *(["crashed"] if outcome.crashed else [])]
        names += [name] if (name := reaped(outcome)) else []
    if names:
        yield Query("tally", {"queue": table.layout.table, "added": json_text(Counter(names))})


def _ended(table: Table, missed: Sequence[Outcome]) -> Step[dict[tuple[str, str], str]]:
    if not missed or table.events.why:
        return {}
    facts = {
        "ids": [outcome.lease.id for outcome in missed],
        "fences": [str(outcome.lease.fence) for outcome in missed],
        "table": table.layout.table,
    }
    answer = yield from carefully(asking(Query(table.text("ended"), facts)))
    if isinstance(answer, psycopg.DatabaseError):
        return {}
    return {(str(id_), str(fence)): str(word) for id_, fence, word in answer}


def requeue(table: Table, which: Filter, limit: int) -> Step[int]:
    condition, params = matching(table, which)
    text = table.text("requeue").replace("{matching}", condition)
    return (yield from _change(table, Query(text, params | {"limit": limit}), "requeued", {}))


def cancel(table: Table, ids: Sequence[str]) -> Step[int]:
    query = Query(table.text("cancel"), {"ids": json_text(named(table, ids))})
    return (yield from _change(table, query, "cancelled", {"code": CANCELLED.code}))


def _change(table: Table, query: Query, type_: str, details: dict[str, Any]) -> Step[int]:
    changed = [id_ for (id_,) in (yield query)]
    if changed:
        [(now,)] = yield Query("SELECT clock_timestamp()", {})
        yield from tell(table, [rows.event(table.layout, id_, type_, details, now) for id_ in changed])
    return len(changed)
