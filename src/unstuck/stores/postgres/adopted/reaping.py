"""reap(): ends the leases of a foreign table that ran out, all in one transaction: lock, judge, update, tell."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from unstuck.abilities import Judge
from unstuck.model import Job, Outcome
from unstuck.store import Blind
from unstuck.stores.postgres import rows as native
from unstuck.stores.postgres.adopted import rows
from unstuck.stores.postgres.adopted.table import Table
from unstuck.stores.postgres.plainly import said
from unstuck.stores.postgres.rows import Query, json_text
from unstuck.stores.postgres.steps import Step

log = logging.getLogger("unstuck.reaper")


class Harvest(NamedTuple):
    """How leases of one table were ended, how many were given one, and when the next one ends."""

    outcomes: list[Outcome]
    adopted: int
    next_end: float | None


def reap(
    table: Table, judge: Judge, limit: int, of: str | None, blind: Sequence[Blind], grace: float
) -> Step[Harvest]:
    if of is not None:
        if not table.has("owner"):
            return Harvest([], 0, None)
        found = yield from _rows(table, "lapsed_of", of=of, limit=limit)
    else:
        spans = json_text([span._asdict() for span in blind])
        found = yield from _rows(table, "lapsed", blind=spans, limit=limit)
    outcomes = yield from _end(table, found, judge)
    adopted = 0 if of else (yield from adopt(table, grace, limit))
    [(end,)] = yield Query(table.text("next_end"), {})
    return Harvest(outcomes, adopted, None if end is None else max(0.0, end))


def judged(table: Table, found: Sequence[rows.Found]) -> Step[list[Job]]:
    """The rows as a judge sees them. Workers that do not count are found out by how often reapers put a row back."""
    put_back: dict[str, int] = {}
    if found and not table.events.why:
        facts = {"ids": [row.id for row in found], "table": table.layout.table}
        put_back = {id_: int(times) for id_, times in (yield Query(table.text("requeues"), facts))}
    return [rows.job(row, table.layout, put_back.get(row.id, 0)) for row in found]


def _end(table: Table, found: Sequence[rows.Found], judge: Judge) -> Step[list[Outcome]]:
    if not found:
        return []
    jobs = yield from judged(table, found)
    outcomes = [judge(job) for job in jobs]
    [(applied, now)] = yield Query(table.text("settle"), rows.endings(outcomes, table.layout, jobs))
    done = [
        outcomes[place] for place in sorted(native.numbers(applied))
    ]  # a trigger or policy may forbid some
    yield from tell(table, list(rows.told(done, table.layout, now)))
    return done


def adopt(table: Table, grace: float, limit: int) -> Step[int]:
    """Give a lease to rows that are processed without one and have been silent for long."""
    found = yield from _rows(table, "silent", grace=grace, limit=limit)
    if not found:
        return 0
    ids = json_text([row.id for row in found])
    done = {id_ for (id_,) in (yield Query(table.text("adopt"), {"ids": ids, "grace": grace}))}
    [(now,)] = yield Query("SELECT clock_timestamp()", {})
    yield from tell(table, [_adoption(table, row, grace, now) for row in found if row.id in done])
    return len(done)


def _adoption(table: Table, row: rows.Found, grace: float, now: datetime) -> dict[str, Any]:
    details = {"locked_by": row.owner, "lease": grace, "last_seen": row.heartbeat_at or row.started_at}
    return rows.event(table.layout, row.id, "reaper:adopted", details, now)


def tell(table: Table, events: Sequence[dict[str, Any]]) -> Step[None]:
    """Write events down. Rows are not left stuck because their history cannot be written: then the log has it."""
    why = table.events.why
    if events and not why:
        yield Query("SAVEPOINT telling", {})
        try:
            yield Query(table.text("tell"), {"events": json_text(events)})
            yield Query("RELEASE SAVEPOINT telling", {})
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as error:
            yield Query("ROLLBACK TO SAVEPOINT telling", {})
            why = said(error)
    if events and why:
        told = json.dumps([event["data"] for event in events], default=str)
        log.error("%d events could not be written to %s: %s: %s", len(events), table.layout.events, why, told)


def _rows(table: Table, name: str, **facts: Any) -> Step[list[rows.Found]]:
    [(text,)] = yield Query(table.text(name), facts)
    return rows.read(text)
