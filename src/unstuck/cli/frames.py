"""What ``unstuck top`` shows, as lines of text: made from an overview of the store, and the one before it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from unstuck import Counts, Job, Overview
from unstuck.cli.output import table_lines
from unstuck.text.phrases import lasting
from unstuck.text.redact import redact


class Line(Struct, frozen=True):
    """``kind`` is how to show it: title, plain, good or bad."""

    text: str
    kind: str = "plain"


def frame(view: Overview, past: Overview | None, url: str, width: int, height: int) -> list[Line]:
    """At most ``height`` lines of at most ``width`` characters; every section gets its share."""
    lines = [_head(view, url)]
    room = height - 1
    sections = [_queues(view, past), _running(view), _workers(view), _dead(view)]
    wants = [len(section) for section in sections]
    while sum(wants) + len(wants) > room and max(wants) > 2:  # the longest gives way first
        wants[wants.index(max(wants))] -= 1
    for section, most in zip(sections, wants, strict=True):
        shown = section[:most]
        if most < len(section):
            shown[-1] = Line(f"… {len(section) - most + 1} more")
        lines += [*shown, Line("")]
    return [Line(line.text[:width], line.kind) for line in lines[:height]]


def _head(view: Overview, url: str) -> Line:
    kind = "good" if view.health.healthy else "bad"
    why = f" ({view.health.why})" if view.health.why else ""
    return Line(f"unstuck  {view.health.status}  {view.now:%H:%M:%S} UTC  {redact(url, 60)}{why}", kind)


def _queues(view: Overview, past: Overview | None) -> list[Line]:
    rows = [
        (
            c.queue[:18],
            c.due,
            c.delayed,
            c.processing,
            c.completed,
            c.dead,
            _rate(c, "completed", view, past),
            _rate(c, "failed", view, past),
            _lasting(c.waited),
            _note(c),
        )
        for c in view.queues
    ]
    titles = ("QUEUE", "DUE", "LATER", "RUN", "DONE", "DEAD", "DONE/S", "FAIL/S", "WAITED", "")
    return _table(titles, rows, "bad" if any(row[-1] for row in rows) else "plain")


def _note(of: Counts) -> str:
    if of.trouble:
        return of.trouble
    if of.halted is not None:
        return f"HALTED {of.halted}"
    if of.paused is not None:
        return f"PAUSED {of.paused}"
    return f"{of.expired} STUCK" if of.expired else ""


def _running(view: Overview) -> list[Line]:
    rows = [
        (
            job.id,
            job.task[:20],
            _lasting(_since(job.started_at, view.now)),
            f"{job.spent}/{job.max_attempts}",
            (job.stage or "")[:12],
            _progress(job),
            (job.owner or "")[-20:],
        )
        for job in sorted(view.running, key=lambda job: job.started_at or view.now)
    ]
    return _table(("RUNNING", "TASK", "FOR", "TRY", "STAGE", "PROGRESS", "WORKER"), rows)


def _workers(view: Overview) -> list[Line]:
    rows = [
        (
            worker.id[-24:],
            worker.pid,
            f"{worker.running}/{worker.concurrency}",
            worker.health.status,
            _lasting(_since(worker.seen_at, view.now)),
            ",".join(worker.queues)[:20],
        )
        for worker in view.workers
    ]
    return _table(("WORKER", "PID", "RUNS", "HEALTH", "SEEN", "QUEUES"), rows)


def _dead(view: Overview) -> list[Line]:
    rows = [
        (job.id, job.task[:20], _lasting(_since(job.finished_at, view.now)), job.error.code if job.error else "",
         redact(job.error.message, 60).replace("\n", " ") if job.error else "")
        for job in view.dead
    ]  # fmt: skip
    return _table(("DEAD", "TASK", "AGO", "CODE", "WHY"), rows)


def _rate(counts: Counts, word: str, view: Overview, past: Overview | None) -> str:
    before = next((of for of in past.queues if of.queue == counts.queue), None) if past else None
    if past is None or before is None or (seconds := (view.now - past.now).total_seconds()) <= 0:
        return "-"
    return f"{(counts.totals.get(word, 0) - before.totals.get(word, 0)) / seconds:.1f}"


def _progress(job: Job) -> str:
    if isinstance(job.progress, int | float) and 0 <= job.progress <= 1:
        done = round(10 * job.progress)
        return f"{'█' * done}{'·' * (10 - done)} {job.progress:4.0%}"
    return "" if job.progress is None else redact(str(job.progress), 16)


def _since(when: datetime | None, now: datetime) -> float | None:
    return None if when is None else (now - when).total_seconds()


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]], kind: str = "plain") -> list[Line]:
    head, *others = table_lines(titles, rows)
    return [Line(head, "title"), *(Line(line, kind) for line in others)]


def _lasting(seconds: float | None) -> str:
    return "" if seconds is None else lasting(seconds)
