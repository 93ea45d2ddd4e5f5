"""reap(): ends leases of a foreign table that ran out, all in one transaction: lock, judge, update, record."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psycopg

from unstuck.protocol.foreign import Judge
from unstuck.protocol.job import Job
from unstuck.protocol.leases import Recovery
from unstuck.protocol.outcome import Outcome
from unstuck.stores.postgres import rows as native
from unstuck.stores.postgres.driver_errors import message_of
from unstuck.stores.postgres.foreign import rows
from unstuck.stores.postgres.foreign.careful import asking, carefully
from unstuck.stores.postgres.foreign.history import histories
from unstuck.stores.postgres.foreign.rows import Past
from unstuck.stores.postgres.foreign.table import Table
from unstuck.stores.postgres.rows import Query, json_text
from unstuck.stores.postgres.steps import Step

log = logging.getLogger("unstuck.reaper")


class Harvest(NamedTuple):
    """How leases of one table were ended, how many rows were given one, when the next lease ends, and which rows were refused."""

    outcomes: list[Outcome]
    adopted: int
    next_end: float | None
    refused: tuple[str, ...] = ()


def reap(table: Table, judge: Judge, recovery: Recovery) -> Step[Harvest]:
    limit, grace = recovery.limit, recovery.grace
    if recovery.of is not None:
        found = []
        if table.has("owner"):
            found = yield from _rows(table, "lapsed_of", of=list(recovery.of), limit=limit)
        outcomes, refused = yield from _end(table, found, judge, {})
        return Harvest(outcomes, 0, (yield from _next_end(table)), _troubles(refused))
    outcomes, refused, adopted = [], {}, 0
    blind = json_text([span._asdict() for span in recovery.blind])
    seen = {"blind": blind, "as_of": recovery.as_of}
    while True:  # until there are no more, or enough: after rows that cannot be changed there may be others
        wanted = limit - len(outcomes)
        found = yield from _rows(table, "lapsed", **seen, limit=wanted, without=list(refused))
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
    """The reasons why rows could not be changed, each one once."""
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
    """How leases were ended, and why others could not be: a trigger, rule or policy may forbid it."""
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
            refusals[job.id] = message_of(one)
        elif one:
            done += one
        else:
            refusals[job.id] = "it cannot be changed"
    return done, refusals


def _settle(table: Table, outcomes: Sequence[Outcome], jobs: Sequence[Job]) -> Step[list[Outcome]]:
    [(applied, now)] = yield Query(table.text("settle"), rows.endings(outcomes, table.layout, jobs))
    done = [outcomes[index] for index in sorted(native.numbers(applied))]
    yield from add_events(table, list(rows.event_records(done, table.layout, now)))
    return done


def adopt(table: Table, found: Sequence[rows.Found], grace: float) -> Step[int]:
    """Give rows a lease: they are processed by workers that do not know about leases."""
    if not found:
        return 0
    ids = json_text([row.id for row in found])
    answer = yield from carefully(asking(Query(table.text("adopt"), {"ids": ids, "grace": grace})))
    if isinstance(answer, psycopg.DatabaseError):
        log.error("rows of table %s could not be given a lease: %s", table.layout.table, message_of(answer))
        return 0
    done = {id_ for (id_,) in answer}
    [(now,)] = yield Query("SELECT clock_timestamp()", {})
    events = []
    for row in found:
        if row.id in done:
            seen = row.heartbeat_at or row.started_at
            details = {"locked_by": row.owner, "lease": grace, "last_seen": seen}
            events.append(rows.event(table.layout, row.id, "reaper:adopted", details, now))
    yield from add_events(table, events)
    return len(done)


def add_events(table: Table, events: Sequence[dict[str, Any]]) -> Step[None]:
    """Write events. Rows must not stay stuck because their events cannot be written: these are logged then."""
    if not events:
        return
    why = table.events.why
    if not why:
        answer = yield from carefully(asking(Query(table.text("log_events"), {"events": json_text(events)})))
        why = message_of(answer) if isinstance(answer, psycopg.DatabaseError) else ""
    if not why:
        return
    name, where = table.layout.table, table.events.table
    if (trouble := f"{name} {where} {why}") not in table.warned:
        table.warned.add(trouble)
        way = f"unstuck init --table {name} makes it possible (--dry-run shows how)"
        if not table.events.why:  # they looked possible, but the server refused them
            way = f"allow it, or name another table: {name}.events=…"
        log.error(
            "events of table %s cannot be written to %s: %s: from now on they are only in this log, at INFO: %s",
            name, where, why, way,
        )  # fmt: skip
    records = json.dumps([event["data"] for event in events], default=str)
    log.info("%d events of table %s that could not be written: %s", len(events), name, records)


def _rows(table: Table, name: str, **facts: Any) -> Step[list[rows.Found]]:
    [(text,)] = yield Query(table.text(name), facts)
    return rows.read(text)
