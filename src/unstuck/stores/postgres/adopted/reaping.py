"""reap(): ends the leases of a foreign table that ran out, all in one transaction: lock, judge, update, tell."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psycopg

from unstuck.abilities import Judge
from unstuck.model import Job, Outcome
from unstuck.store import Blind
from unstuck.stores.postgres import rows as native
from unstuck.stores.postgres.adopted import rows
from unstuck.stores.postgres.adopted.careful import asking, carefully
from unstuck.stores.postgres.adopted.history import histories
from unstuck.stores.postgres.adopted.rows import Past
from unstuck.stores.postgres.adopted.table import Table
from unstuck.stores.postgres.plainly import said
from unstuck.stores.postgres.rows import Query, json_text
from unstuck.stores.postgres.steps import Step

log = logging.getLogger("unstuck.reaper")


class Harvest(NamedTuple):
    """How leases of one table were ended, how many were given one, when the next one ends, and who could not be helped."""

    outcomes: list[Outcome]
    adopted: int
    next_end: float | None
    refused: tuple[str, ...] = ()


def reap(
    table: Table, judge: Judge, limit: int, of: str | None, blind: Sequence[Blind], grace: float
) -> Step[Harvest]:
    if of is not None:
        found = [] if not table.has("owner") else (yield from _rows(table, "lapsed_of", of=of, limit=limit))
        outcomes, refused = yield from _end(table, found, judge, {})
        return Harvest(outcomes, 0, (yield from _next_end(table)), _troubles(refused))
    outcomes, refused, adopted = [], {}, 0
    spans = json_text([span._asdict() for span in blind])
    while True:  # until there is no more, or enough: behind rows that cannot be changed there may be others
        wanted = limit - len(outcomes)
        found = yield from _rows(table, "lapsed", blind=spans, limit=wanted, without=list(refused))
        past = yield from histories(table, found)
        alive = [row for row in found if past.get(row.id, Past()).outlived(row)]
        more, kept = yield from _end(table, [row for row in found if row not in alive], judge, past)
        adopted += yield from adopt(table, alive, grace)
        outcomes += more
        refused |= kept | {row.id: "" for row in alive}
        if len(found) < wanted or len(outcomes) >= limit:
            break
    silent = yield from _rows(table, "silent", grace=grace, limit=limit)
    adopted += yield from adopt(table, silent, grace)
    return Harvest(outcomes, adopted, (yield from _next_end(table)), _troubles(refused))


def _troubles(refused: Mapping[str, str]) -> tuple[str, ...]:
    """Why rows could not be changed, each reason once."""
    by: dict[str, list[str]] = {}
    for id_, why in refused.items():
        by.setdefault(why, []).append(id_)
    return tuple(
        f"row {ids[0]}{f' and {len(ids) - 1} others' if ids[1:] else ''}: {why}"
        for why, ids in by.items()
        if why
    )


def _next_end(table: Table) -> Step[float | None]:
    [(end,)] = yield Query(table.text("next_end"), {})
    return None if end is None else max(0.0, end)


def _end(
    table: Table, found: Sequence[rows.Found], judge: Judge, past: dict[str, Past]
) -> Step[tuple[list[Outcome], dict[str, str]]]:
    """How leases were ended, and why others could not be: a trigger, rule or policy forbids it."""
    if not found:
        return [], {}
    jobs = [rows.job(row, table.layout, past.get(row.id, Past())) for row in found]
    outcomes = [judge(job) for job in jobs]
    answer = yield from carefully(_settle(table, outcomes, jobs))
    if not isinstance(answer, psycopg.DatabaseError):
        refused = [outcome.lease.id for outcome in outcomes if outcome not in answer]
        return answer, dict.fromkeys(refused, "it cannot be changed")
    done: list[Outcome] = []
    refusals: dict[str, str] = {}
    for outcome, job in zip(outcomes, jobs, strict=True):
        one = yield from carefully(_settle(table, [outcome], [job]))
        if isinstance(one, psycopg.DatabaseError):
            refusals[job.id] = said(one)
        elif one:
            done += one
        else:
            refusals[job.id] = "it cannot be changed"
    return done, refusals


def _settle(table: Table, outcomes: Sequence[Outcome], jobs: Sequence[Job]) -> Step[list[Outcome]]:
    [(applied, now)] = yield Query(table.text("settle"), rows.endings(outcomes, table.layout, jobs))
    done = [outcomes[place] for place in sorted(native.numbers(applied))]
    yield from tell(table, list(rows.told(done, table.layout, now)))
    return done


def adopt(table: Table, found: Sequence[rows.Found], grace: float) -> Step[int]:
    """Give rows a lease: they are processed by somebody who knows of none."""
    if not found:
        return 0
    ids = json_text([row.id for row in found])
    answer = yield from carefully(asking(Query(table.text("adopt"), {"ids": ids, "grace": grace})))
    if isinstance(answer, psycopg.DatabaseError):
        log.error("rows of table %s could not be given a lease: %s", table.layout.table, said(answer))
        return 0
    done = {id_ for (id_,) in answer}
    [(now,)] = yield Query("SELECT clock_timestamp()", {})
    events = []
    for row in found:
        if row.id in done:
            seen = row.heartbeat_at or row.started_at
            details = {"locked_by": row.owner, "lease": grace, "last_seen": seen}
            events.append(rows.event(table.layout, row.id, "reaper:adopted", details, now))
    yield from tell(table, events)
    return len(done)


def tell(table: Table, events: Sequence[dict[str, Any]]) -> Step[None]:
    """Write events down. Rows are not left stuck because their history cannot be written: then the log has it."""
    if not events:
        return
    why = table.events.why
    if not why:
        answer = yield from carefully(asking(Query(table.text("tell"), {"events": json_text(events)})))
        why = said(answer) if isinstance(answer, psycopg.DatabaseError) else ""
    if why:
        told = json.dumps([event["data"] for event in events], default=str)
        log.error("%d events could not be written to %s: %s: %s", len(events), table.layout.events, why, told)


def _rows(table: Table, name: str, **facts: Any) -> Step[list[rows.Found]]:
    [(text,)] = yield Query(table.text(name), facts)
    return rows.read(text)
