"""Which rows of a foreign table are stuck, what a reaper would do, and what the table lacks. Only reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from unstuck.protocol.availability import Seen, runs_out
from unstuck.protocol.foreign import Judge, Stuck
from unstuck.protocol.job import Ending, Job
from unstuck.protocol.operators import Finding
from unstuck.protocol.outcome import Outcome
from unstuck.stores.postgres.foreign import rows
from unstuck.stores.postgres.foreign.history import histories
from unstuck.stores.postgres.foreign.layout import OPTIONAL
from unstuck.stores.postgres.foreign.prepare import PARTITIONED, preparation
from unstuck.stores.postgres.foreign.table import Table, columns_of
from unstuck.stores.postgres.rows import Query
from unstuck.stores.postgres.steps import Step
from unstuck.text.phrases import ago

FEW = 5  # unknown statuses that are named
PAST = 3600.0  # seconds since the end of a lease that is not renewed, although its holder sends heartbeats
MOST = 100
_USES = {
    "owner": "it is not known who holds a row, and no worker of ours can lease one",
    "beat": "the last heartbeat of a worker is not known",
    "max_attempts": "all rows have the same number of attempts",
    "run_at": "a row that is put back runs again at once, without a pause",
    "stage": "all rows of the table have the same stage",
    "expected": "leases do not grow with what a row is expected to take",
    "fail_code": "a row that failed does not say why",
    "fail_reason": "a row that failed does not say why",
    "created": "rows that never ran have no order",
}


def stuck(table: Table, judge: Judge, seen: Seen, grace: float, limit: int) -> Step[list[Stuck]]:
    """Rows that a reaper would settle or lease now, and those that wait because the server was restarted."""
    facts = {"limit": limit, "without": [], "as_of": None, "blind": "[]"}
    [(every,)] = yield Query(table.text("lapsed", ""), facts)
    [(silent,)] = yield Query(table.text("silent", ""), {"grace": grace, "limit": limit})
    [(now,)] = yield Query("SELECT clock_timestamp()", {})
    lost = rows.read(every)
    ends = yield Query(table.text("waiting"), {"ids": [row.id for row in lost]})
    until = {id_: runs_out(ended, last_sign, seen) for id_, ended, last_sign in ends}
    waits = {id_: moment for id_, moment in until.items() if moment >= now.timestamp()}
    past = yield from histories(table, lost)
    found = []
    for row in lost:
        before = past.get(row.id, rows.Past())
        job = rows.job(row, table.layout, before)
        if before.outlived(row):
            why = "its worker does not know about leases, but gave a sign of life since it was given one"
            found.append(_stuck(job, now, f"give it a lease of {grace:.0f} s", why))
        else:
            found.append(_stuck(job, now, *_fate(table, job, judge(job), waits.get(job.id))))
    for row in rows.read(silent):
        job = rows.job(row, table.layout)
        far = job.lease_until is not None
        why = (
            "its lease ends impossibly far in the future"
            if far
            else "it has no lease, and was silent for long"
        )
        found.append(_stuck(job, now, f"give it a lease of {grace:.0f} s", why))
    return found


def _fate(table: Table, job: Job, outcome: Outcome, waits: float | None) -> tuple[str, str]:
    if waits is not None:
        return (
            f"wait until {datetime.fromtimestamp(waits, UTC):%Y-%m-%d %H:%M:%S} UTC",
            "its lease ran out, but the server was down: its worker gets time to send a heartbeat again",
        )
    tries = f"attempt {job.attempts} of {job.max_attempts}"
    if outcome.ending is Ending.FAILED:
        return "fail it: timeout", f"its lease ran out in {tries}"
    due = f"in {outcome.delay:.0f} s" if table.has("run_at") else "at once"
    return f"requeue it, due {due}", f"its lease ran out in {tries}"


def _ago(when: datetime | None, now: datetime) -> float | None:
    return None if when is None else max(0.0, (now.astimezone(UTC) - when).total_seconds())


def _stuck(job: Job, now: datetime, would: str, why: str) -> Stuck:
    return Stuck(
        table=job.queue,
        id=job.id,
        stage=job.stage or "",
        held_by=job.owner or "",
        last_sign=_ago(job.heartbeat_at or job.started_at, now),
        ended=_ago(job.lease_until, now),
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        would=would,
        why=why,
    )


def findings(table: Table) -> Step[list[Finding]]:
    layout = table.layout
    missing = yield from preparation(layout)
    leftover = [f"{table.placeholders()[name]} IS NOT NULL" for name in ("owner", "lease") if table.has(name)]
    text = table.text("leftovers").replace("{leftover}", " OR ".join(leftover))
    [(untidy, strange)] = yield Query(text, {})
    kind, _, _ = yield from columns_of(layout.table, layout)
    asked = {"seconds": PAST, "limit": MOST}
    [(unrenewed,)] = yield Query(table.text("unrenewed"), asked)
    [(now,)] = yield Query("SELECT clock_timestamp()", {})
    return [
        *_findings(table, missing, untidy, partitioned=kind == PARTITIONED),
        *_strangers(table, json.loads(strange)),
        *_unrenewed(table, [rows.job(row, layout) for row in rows.read(unrenewed)], now),
    ]


def _findings(table: Table, missing: Sequence[str], untidy: int, *, partitioned: bool) -> Iterator[Finding]:
    layout, name = table.layout, table.layout.table
    init = f"unstuck init --store … --table {name}; with --dry-run it only shows the SQL"
    lacks = [
        f"table {name} has no {getattr(layout, column)}: {_USES[column]}"
        for column in OPTIONAL
        if column in _USES and not table.has(column)
    ]
    if any("CREATE INDEX" in sql for sql in missing):
        lacks.append(f"table {name} lacks indexes: every scan may read all of it")
    if why := table.events.why:
        what = f"events of table {name} cannot be written, only logged: {why}"
        if any("CREATE TABLE" in sql for sql in missing):
            lacks.append(what)
        else:
            fix = f"make it possible, or name another table: {name}.events=…"
            yield Finding("warning", what, fix)
    if why := table.events.instead:
        yield Finding("ok", f"events of table {name} are in {table.events.table}: {why}")
    for what in lacks:
        yield Finding("warning", what, init if what is lacks[-1] else "")
    for column in table.odd:
        what = f"table {name}: {getattr(layout, column)} cannot be used as {column}, because of its type"
        yield Finding("warning", what, f"name another column: {name}.{column}=…")
    if partitioned:
        what = f"table {name} is partitioned: its indexes cannot be built while others work"
        yield Finding("warning", what, "see docs/tables.md for those that help")
    if table.naive:
        what = f"table {name}: {', '.join(table.naive)} do not say their time zone: they are read in the server's"
        yield Finding("warning", what, "ALTER … TYPE timestamptz when you can")
    if untidy:
        what = f"{untidy} rows of table {name} wait, but have a lock or a lease left over"
        yield Finding("ok", f"{what}; it does no harm")


def _strangers(table: Table, words: Sequence[tuple[str, int]]) -> list[Finding]:
    """Statuses that are not in the layout. There may be as many as there are rows."""
    if not words:
        return []
    layout, name = table.layout, table.layout.table
    named = ", ".join(f"{word[:40]!r} ({number})" for word, number in words[:FEW])
    more = ", and others" if len(words) > FEW else ""
    what = (
        f"{sum(number for _, number in words)} rows of table {name} have a {layout.status} that is none of "
        f"{', '.join(layout.words)}, so that nobody takes them: {named}{more}"
    )
    fix = (
        f"fix what writes it; if it is the table's own word for one of these, set it in the URL: "
        f"{name}.queued={words[0][0][:40]} (docs/tables.md)"
    )
    return [Finding("warning", what, fix)]


def _unrenewed(table: Table, jobs: Sequence[Job], now: datetime) -> list[Finding]:
    if not jobs:
        return []
    first, others = jobs[0], len(jobs) - 1
    what = (
        f"row {first.id} of table {table.layout.table}, held by {first.owner or 'an unknown worker'}, beat "
        f"{ago(first.heartbeat_at, now)}, but its lease ended {ago(first.lease_until, now)} and is not "
        "renewed: reapers leave it alone while it beats"
    )
    if others:
        what += f"; it is the same with {others}{' or more' if len(jobs) >= MOST else ''} of the others"
    fix = f"if its worker hangs, stop it: the row is recovered {table.layout.terms.lease:.0f} s after its last beat"
    return [Finding("warning", what, fix)]
