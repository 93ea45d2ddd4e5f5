"""What ``unstuck top`` shows, as lines of text: made from one look at the store, and the one before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from unstuck.health import HEALTHY, HealthStatus, alive, health_status
from unstuck.jobs import Jobs
from unstuck.model import Filter, Job, Status, Worker
from unstuck.redact import redact
from unstuck.retry import spent
from unstuck.store import Counts


class View(Struct, frozen=True):
    """One look at a store."""

    now: datetime
    health: HealthStatus
    counts: list[Counts]
    workers: list[Worker]
    running: list[Job]
    dead: list[Job]


class Line(Struct, frozen=True):
    """``kind`` says how it is meant: head, title, plain, good or bad."""

    text: str
    kind: str = "plain"


async def look(jobs: Jobs) -> View:
    counts, workers = await jobs.counts(), await jobs.workers()
    now = (await jobs.store.clock()).now
    return View(
        now=now,
        health=health_status(workers, counts, now, None),
        counts=counts,
        workers=alive(workers, now),
        running=(await jobs.find(Filter(status=Status.PROCESSING), 50)).jobs,
        dead=(await jobs.find(Filter(dead=True), 10)).jobs,
    )


def frame(view: View, past: View | None, url: str, width: int, height: int) -> list[Line]:
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


def _head(view: View, url: str) -> Line:
    kind = "good" if view.health.status == HEALTHY else "bad"
    why = f" ({view.health.why})" if view.health.why else ""
    return Line(f"unstuck  {view.health.status}  {view.now:%H:%M:%S} UTC  {redact(url, 60)}{why}", kind)


def _queues(view: View, past: View | None) -> list[Line]:
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
            span(c.waited),
            _note(c),
        )
        for c in view.counts
    ]
    titles = ("QUEUE", "DUE", "LATER", "RUN", "DONE", "DEAD", "DONE/S", "FAIL/S", "WAITED", "")
    return list(_table(titles, rows, "bad" if any(row[-1] for row in rows) else "plain"))


def _note(of: Counts) -> str:
    if of.trouble:
        return of.trouble
    if of.paused is not None:
        return f"PAUSED {of.paused}"
    return f"{of.expired} STUCK" if of.expired else ""


def _running(view: View) -> list[Line]:
    rows = [
        (
            job.id,
            job.task[:20],
            span(_since(job.started_at, view.now)),
            f"{spent(job)}/{job.max_attempts}",
            (job.stage or "")[:12],
            _progress(job),
            (job.owner or "")[-20:],
        )
        for job in sorted(view.running, key=lambda job: job.started_at or view.now)
    ]
    return list(_table(("RUNNING", "TASK", "FOR", "TRY", "STAGE", "PROGRESS", "WORKER"), rows))


def _workers(view: View) -> list[Line]:
    rows = [
        (
            worker.id[-24:],
            worker.pid,
            f"{worker.running}/{worker.concurrency}",
            worker.health.status,
            span(_since(worker.seen_at, view.now)),
            ",".join(worker.queues)[:20],
        )
        for worker in view.workers
    ]
    return list(_table(("WORKER", "PID", "RUNS", "HEALTH", "SEEN", "QUEUES"), rows))


def _dead(view: View) -> list[Line]:
    rows = [
        (job.id, job.task[:20], span(_since(job.finished_at, view.now)), job.error.code if job.error else "",
         redact(job.error.message, 60).replace("\n", " ") if job.error else "")
        for job in view.dead
    ]  # fmt: skip
    return list(_table(("DEAD", "TASK", "AGO", "CODE", "WHY"), rows))


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]], kind: str = "plain") -> Iterator[Line]:
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[at]) for row in cells)]) for at, title in enumerate(titles)]
    for row, how in [(list(titles), "title"), *((row, kind) for row in cells)]:
        yield Line(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), how
        )


def _rate(counts: Counts, word: str, view: View, past: View | None) -> str:
    before = next((of for of in past.counts if of.queue == counts.queue), None) if past else None
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


def span(seconds: float | None) -> str:
    """A length of time as short as it can be said."""
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.1f}{unit}"
    return f"{seconds:.1f}s"
